"""What is measured: our app in each shape of use, the calls of a request, clients of which none is known."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from benchmarks.apps.shapes import SHAPES, Case, build
from benchmarks.processes.direct_client import address_of, receive, scope_of
from benchmarks.processes.lifespan import lifespan

POLICIES = {
    "single": '"per-hour";q=10000;w=3600',
    "default+rule": '"per-hour";q=10000;w=3600, "per-minute";q=1000;w=60',
    "three quotas": '"per-minute";q=1000;w=60, "per-hour";q=10000;w=3600, "per-day";q=100000;w=86400',
}
# Units left of the hour's 10,000 after two requests; the answer to the second one reports its cost before settling.
REMAINING = {"cost": 9996, "settle": 9997}


async def answers(peer: str, shape: str, requests: int) -> list[tuple[int, dict[str, str]]]:
    """The status and the headers of each answer to one client."""
    app, got = build(peer, Case(shape, "memory", "", 1000)), []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            got.append((message["status"], headers))

    async with lifespan(app) as state:
        for _ in range(requests):
            await app(scope_of(address_of(1), state), receive, send)
    return got


@pytest.mark.parametrize("shape", SHAPES)
def test_ours_answers_in_each_shape(shape: str) -> None:
    """With the headers of its quotas, where a middleware or a dependency limits; the bare app has none."""
    bare, ours, *_ = SHAPES[shape]
    assert [status for status, _ in asyncio.run(answers(bare, shape, 2))] == [200, 200]
    last_status, headers = asyncio.run(answers(ours, shape, 2))[-1]
    assert last_status == 200
    if shape in ("Limiter.rate_limit", "@pace at once"):
        assert "ratelimit" not in headers
        return
    assert headers["ratelimit-policy"] == POLICIES.get(shape, POLICIES["single"])
    assert f'"per-hour";r={REMAINING.get(shape, 9998)};' in headers["ratelimit"]
