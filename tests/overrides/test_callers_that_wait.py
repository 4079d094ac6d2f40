"""A limit changes while callers wait under the old one: booked slots keep their times, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, Overrides, PacedTransport, RateLimitMiddleware, Rule, TokenBucket, pace
from asgi_ratelimit.quotas import Quota
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ok

# One every 5 s, and one every 50 ms.
FEW, MANY = TokenBucket(12, 60, burst=1, name="calls"), TokenBucket(1200, 60, burst=1, name="calls")

Call = Callable[[], Awaitable[object]]


def paced(store: MemoryStore, quota: Quota) -> Call:
    @pace(quota, store=store, name="api")
    async def call() -> None: ...

    return call


def spending(store: MemoryStore, quota: Quota) -> Call:
    limiter = Limiter(quota, store=store, name="api")

    async def call() -> None:
        async with limiter.spend("key", 1):
            pass

    return call


def sending_and_settling(store: MemoryStore, quota: Quota) -> Call:
    service = httpx.MockTransport(lambda _: httpx.Response(200))
    transport = PacedTransport(service, quota, store=store, name="api", settle=lambda response: 1)
    client = httpx.AsyncClient(transport=transport, base_url="http://service")
    return lambda: client.get("/")


def delayed(store: MemoryStore, quota: Quota) -> Call:
    app = RateLimitMiddleware(ok, rules=[Rule("/", quota, name="api", max_delay=100.0)], store=store)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app")
    return lambda: client.get("/")


# Callers that wait for slots that are booked.
BOOKED = [paced, delayed]
# Callers that wait without having booked anything.
UNBOOKED = [spending, sending_and_settling]


class Departures:
    """When callers left, in seconds since the first one."""

    def __init__(self, clock: SteppedClock, call: Call) -> None:
        self._clock, self._call, self._start = clock, call, clock.now
        self.times: list[float] = []

    def start(self, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._one()) for _ in range(count)]

    async def _one(self) -> None:
        await self._call()
        self.times.append(round(self._clock.now - self._start, 2))


@pytest.mark.parametrize("way", [*BOOKED, *UNBOOKED])
def test_a_raised_limit_counts_at_once_for_those_that_come(
    clock: SteppedClock, way: Callable[[MemoryStore, Quota], Call]
) -> None:
    """Whoever waits for a booked slot, or did so before, holds up nobody."""
    store = MemoryStore(clock=clock)

    async def change() -> None:
        call = way(store, FEW)
        before, after = Departures(clock, call), Departures(clock, call)
        waiting = before.start(4)
        await asyncio.sleep(1)
        await Overrides(store).set("api", MANY)
        await asyncio.sleep(1)
        coming = after.start(5)
        await asyncio.gather(*coming)
        assert max(after.times) <= 2.4
        await asyncio.gather(*waiting)
        if way in BOOKED:
            assert before.times == [0.0, 5.0, 10.0, 15.0]
        else:
            assert max(before.times) <= 5.2  # the first one has slept until its time

    clock.run(change())


@pytest.mark.parametrize("way", UNBOOKED)
def test_a_lowered_limit_counts_for_those_that_have_booked_nothing(
    clock: SteppedClock, way: Callable[[MemoryStore, Quota], Call]
) -> None:
    """No more of them than the new limit admits leave from then on."""
    store = MemoryStore(clock=clock)

    async def change() -> None:
        leaving = Departures(clock, way(store, MANY))
        tasks = leaving.start(60)
        await asyncio.sleep(1)
        await Overrides(store).set("api", FEW)
        await asyncio.sleep(60)
        assert sum(1.0 < time <= 61.0 for time in leaving.times) <= 1 + 12
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(change())
