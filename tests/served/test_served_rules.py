"""Rules behind a real uvicorn, with a real client, over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from redis import Redis

from tests.support.server import Uvicorn

CLIENTS = count(1)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    with Uvicorn("tests.support.inbound_apps:rules_app", env={"STORE": store_url}) as server:
        yield server


@pytest.fixture
def client(server: Uvicorn) -> Iterator[httpx.Client]:
    """A client with buckets of its own."""
    name = f"rules client {next(CLIENTS)}"
    headers = {"x-client": name, "x-user": f"user of {name}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as client:
        yield client


def test_limits_by_address_by_user_and_for_all_are_one_call_to_redis(redis_url: str) -> None:
    """Three rules with a key each, and Redis runs one script for each request."""
    headers = {"x-client": "ann's laptop", "x-user": "ann"}
    with (
        Uvicorn("tests.support.inbound_apps:rules_app", env={"STORE": redis_url}) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as client,
        Redis.from_url(redis_url) as redis,
    ):
        assert client.get("/triple").headers["ratelimit"].count(";r=") == 3
        before = redis.info("commandstats")["cmdstat_evalsha"]["calls"]
        for _ in range(20):
            assert client.get("/triple").status_code == 200
        assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 20


def test_a_tier_is_what_a_function_says(client: httpx.Client) -> None:
    """Two for everybody, more for those who pay."""
    assert [client.get("/tier").status_code for _ in range(3)] == [200, 200, 429]
    assert client.get("/tier", headers={"x-tier": "pro"}).status_code == 200


def test_a_cost_is_what_a_function_says(client: httpx.Client) -> None:
    """By a parameter of the query."""
    assert [client.get("/cost", params={"n": n}).status_code for n in (6, 5, 4, 0)] == [200, 429, 200, 200]


def test_a_rule_that_is_tried_out_refuses_nobody(client: httpx.Client) -> None:
    """And shows in no header."""
    answers = [client.get("/tried") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "ratelimit" not in answers[-1].headers


def test_a_function_that_fails_loses_no_request(client: httpx.Client) -> None:
    """A key that fails is the address; a quota that fails gets 503 where the rule is strict."""
    assert [client.get("/broken").status_code for _ in range(3)] == [200, 429, 429]
    answer = client.get("/strict")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"].endswith("#temporary-reduced-capacity")


def test_a_refusal_has_an_answer_of_its_own_and_the_headers_of_others(client: httpx.Client) -> None:
    """Those of both dialects, and those of the CORS middleware further out."""
    origin = {"origin": "https://shop.example"}
    client.get("/one", headers=origin)
    answer = client.get("/one", headers=origin)
    assert answer.status_code == 429
    assert answer.json() == {"sorry": "/one", "wait": pytest.approx(3600, abs=60)}
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert answer.headers["ratelimit"].startswith('"per-hour";r=0')
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert int(answer.headers["retry-after"]) > 3000
