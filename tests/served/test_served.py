"""The middleware in a real uvicorn, with a real client, over both stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn

TIMEOUT = 20.0
CLIENTS = count(1)


@pytest.fixture(scope="module")
def starlette_server(store_url: str) -> Iterator[Uvicorn]:
    with Uvicorn("tests.support.apps:starlette_app", env={"STORE": store_url}) as server:
        yield server


def a_client(server: Uvicorn, name: str | None = None) -> httpx.Client:
    """A client with a bucket of its own, unless it goes by the name of another."""
    headers = {"x-client": name or f"client {next(CLIENTS)}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=TIMEOUT, trust_env=False)


@pytest.fixture
def client(starlette_server: Uvicorn) -> Iterator[httpx.Client]:
    with a_client(starlette_server) as client:
        yield client


def left(response: httpx.Response) -> str:
    """What the answer says is left, without the time."""
    return response.headers["ratelimit"].rpartition(";")[0]


def use_up(client: httpx.Client, units: int = 10) -> None:
    for _ in range(units):
        assert client.get("/who").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/who", 200),
        ("HEAD", "/who", 200),
        ("POST", "/echo", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/echo", 405),
        ("GET", "/teapot", 418),
        ("GET", "/inner/boom", 500),
    ],
)
def test_every_answer_carries_headers_once(client: httpx.Client, method: str, path: str, status: int) -> None:
    """Whatever becomes of the request, in the app or in one that is mounted."""
    response = client.request(method, path)
    assert response.status_code == status
    assert response.headers.get_list("ratelimit-policy") == ['"per-hour";q=10;w=3600']
    assert left(response) == '"per-hour";r=9'


CLOSING = {"connection": "close"}  # after an error the server hangs up in any case, but a little later


def test_the_framework_answers_an_unhandled_error_without_headers(client: httpx.Client) -> None:
    """Starlette does so outside of all middleware; the request is charged all the same."""
    response = client.get("/boom", headers=CLOSING)
    assert response.status_code == 500
    assert "ratelimit" not in response.headers
    assert left(client.get("/who")) == '"per-hour";r=8'


def test_an_answer_is_streamed(client: httpx.Client, starlette_server: Uvicorn) -> None:
    """The first half arrives while the app waits for somebody who has seen it."""
    with client.stream("GET", "/stream") as response:
        assert left(response) == '"per-hour";r=9'
        parts = response.iter_text()
        assert next(parts) == "first,"
        with a_client(starlette_server) as another:
            another.get("/free/release")
        assert "".join(parts) == "second"


def test_a_refused_body_is_not_taken_for_the_next_request(client: httpx.Client) -> None:
    """What the client sent along with a refused request is gone with it."""
    use_up(client)
    assert client.post("/echo", content=b"GET /who HTTP/1.1\r\n\r\n" * 10_000).status_code == 429
    assert client.get("/free/who").status_code == 200


def test_a_refused_head_has_no_body(client: httpx.Client) -> None:
    """But the headers of a refused GET."""
    use_up(client)
    response = client.head("/who")
    assert (response.status_code, response.content) == (429, b"")
    assert response.headers["content-length"] == client.get("/who").headers["content-length"]


async def statuses(server: Uvicorn, requests: int) -> Counter[int]:
    """The answers to so many requests of one client at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=requests)
    headers = {"x-client": f"crowd {next(CLIENTS)}"}
    async with httpx.AsyncClient(limits=limits, headers=headers, timeout=TIMEOUT, trust_env=False) as client:
        answers = await asyncio.gather(*[client.get(f"{server.url}/who") for _ in range(requests)])
    return Counter(answer.status_code for answer in answers)


@pytest.fixture(scope="module")
def two_workers(redis_server: RedisServer) -> Iterator[Uvicorn]:
    """A server of two processes."""
    env = {"STORE": redis_server.url, "QUOTA": "50/day"}
    with Uvicorn("tests.support.apps:starlette_app", "--workers", "2", env=env) as server:
        yield server


@pytest.mark.anyio
async def test_of_two_hundred_at_once_exactly_those_pass_that_fit(two_workers: Uvicorn) -> None:
    """No race lets one more through, or keeps one out, within one process or between two."""
    assert await statuses(two_workers, 200) == {200: 50, 429: 150}
