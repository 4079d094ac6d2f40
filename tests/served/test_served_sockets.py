"""WebSockets behind a real uvicorn, over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.server import Uvicorn

CLIENTS = count(1)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """The app on each store."""
    with Uvicorn("tests.support.inbound_apps:socket_app", env={"STORE": store_url}) as server:
        yield server


@pytest.fixture
def client() -> str:
    """The name of a client with buckets of its own."""
    return f"socket client {next(CLIENTS)}"


def a_socket(server: Uvicorn, path: str, client: str) -> ClientConnection:
    url = server.url.replace("http", "ws", 1) + path
    return connect(url, additional_headers={"x-client": client}, proxy=None)


def test_too_many_handshakes_are_answered(server: Uvicorn, client: str) -> None:
    """The third by 429, over HTTP; those that pass say what is left."""
    for left in (1, 0):
        with a_socket(server, "/shut", client) as session:
            assert session.response is not None
            assert session.response.headers["ratelimit"].startswith(f'"per-hour";r={left};')
    with pytest.raises(InvalidStatus) as refused:
        a_socket(server, "/shut", client)
    assert refused.value.response.status_code == 429
    assert int(refused.value.response.headers["retry-after"]) > 1000


def test_too_many_messages_close_the_socket(server: Uvicorn, client: str) -> None:
    """By 1013, when the next would have to wait for too long; what came before is answered."""
    with a_socket(server, "/shut", client) as session:
        for _ in range(4):
            session.send("hello")
        assert [session.recv() for _ in range(3)] == ["1 hello", "2 hello", "3 hello"]
        with pytest.raises(ConnectionClosedError) as closed:
            session.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "too many messages")


def test_a_little_patience_loses_nothing(server: Uvicorn, client: str) -> None:
    """Messages that come too fast are all heard, in their order, and the socket stays open."""
    with a_socket(server, "/slow", client) as session:
        for number in range(1, 31):
            session.send(str(number))
        assert [session.recv() for _ in range(30)] == [f"{number} {number}" for number in range(1, 31)]


def test_an_app_that_cancels_what_it_receives_loses_nothing(server: Uvicorn, client: str) -> None:
    """Where it waits for the next message or for something else, whatever comes first."""
    with a_socket(server, "/pushing", client) as session:
        for number in range(1, 31):
            session.send(str(number))
        assert [session.recv(timeout=30) for _ in range(30)] == [f"{number} {number}" for number in range(1, 31)]
