"""Charging by outcome behind a real uvicorn, over both stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from tests.support.server import Uvicorn

CLIENTS = count(1)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """The app on each store."""
    with Uvicorn("tests.support.inbound_apps:outcome_app", env={"STORE": store_url}) as server:
        yield server


@pytest.fixture
def client(server: Uvicorn) -> Iterator[httpx.Client]:
    """A client with buckets of its own."""
    headers = {"x-client": f"outcome client {next(CLIENTS)}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as client:
        yield client


def left(answer: httpx.Response) -> int:
    return int(answer.headers["ratelimit"].split(";r=")[1].partition(";")[0])


def logins(client: httpx.Client, *passwords: str) -> list[int]:
    return [client.get("/login", params={"password": password}).status_code for password in passwords]


def test_only_failed_logins_count(client: httpx.Client) -> None:
    """Any number of right ones pass, one after the other, and three wrong ones."""
    assert logins(client, *["right"] * 10) == [200] * 10
    assert logins(client, "a", "b", "c", "d", "right") == [401, 401, 401, 429, 429]


def test_an_answer_says_its_cost(client: httpx.Client) -> None:
    """In a header, and the next answer reports what is left after it."""
    assert left(client.get("/priced", params={"cost": 30})) == 99
    assert left(client.get("/priced", params={"cost": 80})) == 69
    assert client.get("/priced", params={"cost": 1}).status_code == 429


def test_an_endpoint_charges_more(client: httpx.Client) -> None:
    """What does not fit is refused from within it."""
    answers = [client.get("/report", params={"pages": pages}) for pages in (4, 6, 3)]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert answers[1].json()["violated-policies"] == ["per-day"]
    assert [left(answer) for answer in answers] == [5, 4, 0]


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
