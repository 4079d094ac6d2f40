"""What is measured: our app in each shape of use, the calls of a request, clients of which none is known."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import parse_quotas
from benchmarks.apps.shapes import SHAPES, Case, build
from benchmarks.calls import Calls, calls_of, row
from benchmarks.processes.direct_client import DirectClient, address_of, receive, scope_of
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


async def limited(scope: Scope, receive: Receive, send: Send) -> None:
    """Calls a function of the package, and answers with the status in the path."""
    parse_quotas("5/s")
    await send({"type": "http.response.start", "status": int(scope["path"][1:] or 200), "headers": []})


def test_calls_of_our_files_are_counted_and_others_are_not() -> None:
    """The median request counts; one that is refused takes another path, and would falsify the figures."""
    counted = asyncio.run(calls_of(limited, {}, 1))
    assert counted.functions["quota_text.py", "parse_quotas"] == 1
    assert not any("limited" in function for _, function in counted.functions)
    few, many = (Calls(Counter({("a.py", "f"): total})) for total in (16, 90))
    assert row("memory", "known", [few, few, many], 16, 1)[1] == "16"

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await limited({**scope, "path": "/429"}, receive, send)

    with pytest.raises(RuntimeError, match="429"):
        asyncio.run(calls_of(refusing, {}, 1))


def test_a_visit_sends_one_request_from_each_client() -> None:
    """No two of many clients have one address, and an app that raises does not end the measurement."""
    assert len({address_of(client) for client in range(100_000)}) == 100_000
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"])
        raise RuntimeError("broken")

    answer = asyncio.run(DirectClient(app, {}).visit(first=5, clients=3, at_once=2, times=2, warm=[1, 2]))
    assert seen == [address_of(client) for client in (1, 2, 5, 6, 7, 5, 6, 7)]
    assert (answer["requests"], answer["statuses"]) == (6, {"RuntimeError: broken": 6})
