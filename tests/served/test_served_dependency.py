"""Dependencies behind a real uvicorn, with real clients, over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.server import Uvicorn

CLIENTS = count(1)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """The app on each store."""
    with Uvicorn("tests.support.inbound_apps:dependency_app", env={"STORE": store_url}) as server:
        yield server


@pytest.fixture
def headers() -> dict[str, str]:
    """Those of a client with buckets of its own."""
    return {"x-client": f"dependency client {next(CLIENTS)}"}


@pytest.fixture
def client(server: Uvicorn, headers: dict[str, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as client:
        yield client


def left(answer: httpx.Response) -> str:
    return ", ".join(each.rpartition(";")[0] for each in answer.headers["ratelimit"].split(", "))


def test_limits_of_routers_and_routes_add_up(client: httpx.Client) -> None:
    """The answer names the quota that refused, and refused requests take nothing from the limit of the router."""
    answers = [client.get(f"/branch/leaf/{number}") for number in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert left(answers[0]) == '"per-hour";r=2, "per-day";r=1'
    assert answers[2].json()["violated-policies"] == ["per-day"]
    assert answers[2].headers["content-type"] == "application/problem+json"
    answer = client.get("/branch/leaf/own/teapot")
    assert (answer.status_code, left(answer)) == (418, '"per-hour";r=0')
    assert client.get("/branch/leaf/own/teapot").status_code == 429


def test_a_websocket_route_is_limited(server: Uvicorn, headers: dict[str, str]) -> None:
    """The second handshake is answered with 429, by HTTP."""
    url = f"{server.url}/ws".replace("http", "ws", 1)
    with connect(url, additional_headers=headers, proxy=None) as session:
        assert session.recv() == "hello"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=headers, proxy=None)
    response = refused.value.response
    assert response.status_code == 429
    assert response.headers["retry-after"]
    assert b"quota-exceeded" in (response.body or b"")
