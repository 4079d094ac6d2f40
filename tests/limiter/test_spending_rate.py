"""How much of a limit saturated callers of ``spend`` use, whose estimates are far above what they need."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit import Limiter, MemoryStore, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.store_elsewhere import StoreElsewhere

BUCKET = TokenBucket(60_000, 60)
ESTIMATE, ACTUAL = 1500, 313


def times_of_blocks(estimate: float, processes: int = 1) -> list[float]:
    """When a hundred callers enter their blocks of ten seconds in five minutes, in microseconds; each comes at once."""
    clock, times = SteppedClock(0), list[float]()
    shared = MemoryStore(clock=clock)
    stores = [StoreElsewhere(shared) for _ in range(processes)] if processes > 1 else [shared]

    async def call(limiter: Limiter) -> None:
        while True:
            async with limiter.spend("key", estimate) as spent:
                spent.settle(ACTUAL)
                times.append(spent.decision.now_us)
                await asyncio.sleep(10)

    async def main() -> None:
        limiters = [Limiter(BUCKET, store=store) for store in stores]
        calls = [asyncio.ensure_future(call(limiters[number % processes])) for number in range(100)]
        await asyncio.sleep(300)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)

    clock.run(main())
    return times


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize(("estimate", "used"), [(ESTIMATE, 0.92), (400, 0.97)])
def test_estimates_that_come_back_are_used(estimate: float, used: float, processes: int) -> None:
    """On a bucket of a thousand units a second, whether the callers see each other's settlements or not."""
    times = times_of_blocks(estimate, processes)
    steady = [time for time in times if time >= BUCKET.period_us]
    assert len(steady) * ACTUAL >= used * (300 - 60) * 1000
