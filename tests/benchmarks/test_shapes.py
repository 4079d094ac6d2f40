"""The shapes of use: the apps of ours, and the figures from given rounds."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.types import Message

from benchmarks.apps.shapes import SHAPES, Case, build
from benchmarks.parts import shapes
from benchmarks.plan import plan
from benchmarks.processes.direct_client import address_of, receive, scope_of
from benchmarks.processes.lifespan import lifespan
from benchmarks.processes.runner import Failed, Runner
from benchmarks.reporting.results import Part
from benchmarks.subject import PEERS, Subject, Where

POLICIES = {
    "single": '"per-hour";q=10000;w=3600',
    "default+rule": '"per-hour";q=10000;w=3600, "per-minute";q=1000;w=60',
    "three quotas": '"per-minute";q=1000;w=60, "per-hour";q=10000;w=3600, "per-day";q=100000;w=86400',
}
REMAINING = {"cost": 9996, "settle": 9997}
"""Units left of the hour's 10,000 after two requests; the answer to the second one reports its cost before settling."""


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
    left = REMAINING.get(shape, 9998)
    assert f'"per-hour";r={left};' in headers["ratelimit"]


class FakeRunner:
    """A runner whose process needs the same CPU time for each request."""

    redis = None

    def __init__(self, peer: str, where: Where, cpu_us: dict[str, float], error: str = "") -> None:
        self.subject = Subject(PEERS[peer], where)
        self.clients: list[int] = []
        """The first clients of visits."""
        self._cpu_us, self._error, self._shape = cpu_us, error, ""

    def use(self, _: object, shape: str) -> None:
        if self._error:
            raise Failed(self._error)
        self._shape = shape

    def call(self, do: str, clients: int, requests: int = 0, first: int = 0, **_: Any) -> dict[str, Any]:
        count = requests or clients
        if do == "visit":
            self.clients.append(first)
        seconds = self._cpu_us.get(self._shape, self._cpu_us[""]) * count / 1e6
        return {"cpu": seconds, "wall": seconds, "requests": count, "statuses": {"200": count}}


def measured(*runners: FakeRunner) -> Part:
    (part,) = shapes.run(cast("list[Runner]", runners), plan(quick=True, clients=1000, subjects=4))
    return part


def figures(part: Part, name: str) -> dict[str, float]:
    row = part.row(name)
    assert row
    return row.figures


def test_ours_is_compared_with_a_single_quota_and_with_peers() -> None:
    """What it takes more is scaled to a bare app of 7 µs, and divided by the further charges."""
    part = measured(
        FakeRunner("bare", "none", {"": 14.0}),
        FakeRunner("ours", "memory", {"": 24.0, "tier": 30.0, "three quotas": 36.0}),
        FakeRunner("limits", "memory", {"": 19.0}),
    )
    assert figures(part, "single: ours memory")["known"] == pytest.approx(10)
    assert figures(part, "single: ours memory")["scaled"] == pytest.approx(5)
    assert figures(part, "tier: ours memory")["over_single"] == pytest.approx(3)
    assert figures(part, "three quotas: ours memory")["charge"] == pytest.approx(3)
    assert figures(part, "single: limits memory")["ours_known"] == pytest.approx(2)
    assert part.row("settle: limits memory") is None


def test_a_peer_that_breaks_has_its_error_in_its_row() -> None:
    """The others are measured."""
    part = measured(
        FakeRunner("bare", "none", {"": 14.0}),
        FakeRunner("ours", "memory", {"": 24.0}),
        FakeRunner("limits", "memory", {"": 1.0}, "broken"),
    )
    row = part.row("cost: limits memory")
    assert row
    assert row.error == "broken"
    assert figures(part, "cost: ours memory")["growth"] == pytest.approx(1)


def test_every_chunk_of_ours_has_new_clients() -> None:
    """No client is known, or comes twice in one shape; a peer visits some of the same chunks."""
    bare, ours = FakeRunner("bare", "none", {"": 9.0}), FakeRunner("ours", "memory", {"": 20.0})
    peer = FakeRunner("limits", "memory", {"": 30.0})
    known = plan(quick=True, clients=1000, subjects=3).known_clients
    measured(bare, ours, peer)
    assert min(ours.clients) == known
    shapes_of_ours = sum("ours" in peers for peers in SHAPES.values())
    assert all(ours.clients.count(first) == shapes_of_ours for first in ours.clients)
    assert set(peer.clients) < set(ours.clients)
