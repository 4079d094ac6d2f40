"""Requests that wait for their slots, in a real uvicorn, with real clients, over both stores."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256
from itertools import count, pairwise
from typing import Any

import httpx
import pytest

from tests.support.server import HOST, Uvicorn

CLIENTS = count(1)
PATIENCE = 30.0


def a_server(*options: str, **env: str) -> Uvicorn:
    """A uvicorn whose requests wait, as these variables of its environment say."""
    return Uvicorn("tests.support.apps:waiting_app", *options, env=env)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """10/s, one after the other, with each of uvicorn's parsers on another store."""
    with a_server("--http", "h11" if store_url == "memory://" else "httptools", STORE=store_url) as server:
        yield server


@pytest.fixture
def name() -> str:
    """A client with a bucket of its own."""
    return f"waiting client {next(CLIENTS)}"


class Line:
    """A connection on which bytes are written as they are."""

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._head = f"HTTP/1.1\r\nhost: {HOST}\r\nx-client: {name}\r\n"

    def send(self, request: str = "GET /", headers: str = "", body: bytes = b"", times: int = 1) -> None:
        """Send a request, or the same one several times at once."""
        self.write((f"{request} {self._head}{headers}\r\n".encode() + body) * times)

    def write(self, sent: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(sent)

    def read(self) -> bytes:
        """Some bytes of an answer."""
        return self._socket.recv(65_536)

    def close(self) -> None:
        """Go away, as a client does that has lost its patience."""
        self._socket.close()


@pytest.fixture
def connected(name: str) -> Iterator[Callable[[Uvicorn], Line]]:
    """Connects to a server; all lines are closed in the end."""
    with ExitStack() as stack:

        def connect_to(server: Uvicorn) -> Line:
            line = Line(server.port, name)
            stack.callback(line.close)
            return line

        yield connect_to


def wait_until_under_way(server: Uvicorn, number: int) -> None:
    """Wait until there are exactly so many requests in the server."""
    deadline = time.monotonic() + PATIENCE
    with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE) as client:
        while client.get("/under-way").json() != number:
            assert time.monotonic() < deadline, f"there are never {number} requests under way"
            time.sleep(0.01)


def get(server: Uvicorn, name: str, path: str = "/") -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers={"x-client": name}, timeout=PATIENCE, trust_env=False)


def all_at_once(servers: list[Uvicorn], name: str, requests: int) -> list[httpx.Response]:
    """The answers to so many requests of one client, sent to the servers in turn."""
    with ThreadPoolExecutor(requests) as pool:
        return list(pool.map(lambda number: get(servers[number % len(servers)], name), range(requests)))


def require_spacing(answers: list[httpx.Response], seconds: float) -> None:
    """Each slot is at least so long after the one before, by the clock of the store: none is used twice."""
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    slots = sorted(answer.json()["ready_at"] for answer in answers)
    assert min(later - earlier for earlier, later in pairwise(slots)) > seconds - 0.001


def test_a_burst_is_spread_at_the_rate(server: Uvicorn, name: str) -> None:
    """Nobody is refused, and the answers say how long their requests have waited."""
    answers = all_at_once([server], name, 10)
    require_spacing(answers, 0.1)
    told = [float(answer.headers.get("x-ratelimit-delay", "0")) for answer in answers]
    assert any(told)
    assert told == [round(answer.json()["delay"], 3) for answer in answers]


def test_two_workers_share_the_line(redis_url: str, name: str) -> None:
    """On one Redis, the slots of both are one after the other, and none is used twice."""
    with a_server(STORE=redis_url) as one, a_server(STORE=redis_url) as other:
        answers = all_at_once([one, other], name, 20)
    require_spacing(answers, 0.1)
    assert len({answer.json()["process"] for answer in answers}) == 2


def test_a_client_that_disconnects_gives_its_slot_back(
    store_url: str, name: str, connected: Callable[[Uvicorn], Line]
) -> None:
    """At once, not only when its slot would have come: one that was refused for it has room then."""
    options = ("--timeout-graceful-shutdown", "1")  # nobody waits for the one that is left
    with a_server(*options, STORE=store_url, QUOTA="1/hour burst 1", MAX_DELAY="5400") as server:
        get(server, name)
        gone = connected(server)
        gone.send("POST /digest", "content-length: 100\r\n", b"the first part")
        wait_until_under_way(server, 1)
        assert get(server, name).status_code == 429
        gone.close()
        wait_until_under_way(server, 0)
        connected(server).send()
        wait_until_under_way(server, 1)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_a_body_arrives_unchanged(
    server: Uvicorn, name: str, connected: Callable[[Uvicorn], Line], size: int, chunked: bool
) -> None:
    """Whatever was read of it while the request waited."""
    body = bytes(range(256)) * (size // 256 + 1)
    parts = iter([body[at : at + 100_000] for at in range(0, len(body), 100_000)])
    connected(server).send(times=5)  # nobody reads the answers: a line to wait in
    content: Any = parts if chunked else body
    answer = httpx.post(f"{server.url}/digest", content=content, headers={"x-client": name}, timeout=PATIENCE)
    assert answer.json() == {"size": len(body), "digest": sha256(body).hexdigest()}


def test_a_body_that_is_asked_for_comes_after_the_wait(
    server: Uvicorn, name: str, connected: Callable[[Uvicorn], Line]
) -> None:
    """A client that expects ``100 Continue`` gets it when the app reads."""
    get(server, name)
    line = connected(server)
    line.send("POST /digest", "expect: 100-continue\r\nconnection: close\r\ncontent-length: 3\r\n")
    assert line.read().startswith(b"HTTP/1.1 100")
    line.write(b"abc")
    answer = b"".join(iter(line.read, b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"size": 3, "digest": sha256(b"abc").hexdigest()}
