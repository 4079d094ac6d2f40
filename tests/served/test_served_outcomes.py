"""Charging by outcome, and WebSockets, behind a real uvicorn, over both stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.server import Uvicorn

CLIENTS = count(1)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """The app on each store."""
    with Uvicorn("tests.support.apps:inbound_app", env={"STORE": store_url}) as server:
        yield server


@pytest.fixture
def client(server: Uvicorn) -> Iterator[httpx.Client]:
    """A client with buckets of its own."""
    headers = {"x-client": f"client {next(CLIENTS)}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as client:
        yield client


def left(answer: httpx.Response) -> int:
    return int(answer.headers["ratelimit"].split(";r=")[1].partition(";")[0])


def test_a_client_that_disconnects_is_charged_for_what_was_sent(client: httpx.Client) -> None:
    """An answer without end is broken off by its reader, and some of it was sent by then."""
    with client.stream("GET", "/endless") as answer:
        first = left(answer)
        assert sum(len(chunk) for chunk, _ in zip(answer.iter_bytes(1000), range(50))) == 50_000
    deadline = time.monotonic() + 60
    for polls in count(1):
        used = first - left(client.get("/kilobytes")) - polls
        if used >= 49 or time.monotonic() > deadline:
            break
    assert used >= 49


def a_socket(client: httpx.Client, path: str) -> ClientConnection:
    url = str(client.base_url.join(path)).replace("http", "ws", 1)
    return connect(url, additional_headers={"x-client": client.headers["x-client"]}, proxy=None)


def test_too_many_handshakes_are_answered(client: httpx.Client) -> None:
    """The third by 429, over HTTP; those that pass say what is left."""
    for left in (1, 0):
        with a_socket(client, "/shut") as session:
            assert session.response is not None
            assert session.response.headers["ratelimit"].startswith(f'"per-hour";r={left};')
    with pytest.raises(InvalidStatus) as refused:
        a_socket(client, "/shut")
    assert refused.value.response.status_code == 429
    assert int(refused.value.response.headers["retry-after"]) > 1000


def test_too_many_messages_close_the_socket(client: httpx.Client) -> None:
    """By 1013, when the next would have to wait for too long; what came before is answered."""
    with a_socket(client, "/shut") as session:
        for _ in range(4):
            session.send("hello")
        assert [session.recv() for _ in range(3)] == ["1 hello", "2 hello", "3 hello"]
        with pytest.raises(ConnectionClosedError) as closed:
            session.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "too many messages")
