"""Processes that spend one limit over a store: each gets its part, also if it is far from the store."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from asgi_ratelimit import Limiter, MemoryStore, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.store_elsewhere import StoreElsewhere

LATENCIES = (0.001, 0.001, 0.001, 0.008)
SECONDS = 8


def blocks(quota: str, actual: float) -> Counter[int]:
    """How many blocks of ten units the callers of each process enter in some seconds; each needs ``actual`` units."""
    clock, entered = SteppedClock(), Counter[int]()
    store = MemoryStore(clock=clock)
    limiters = [Limiter(quota, store=StoreElsewhere(store, each)) for each in LATENCIES]
    end = clock.now + SECONDS

    async def work(number: int) -> None:
        while clock.now < end:
            async with limiters[number].spend("key", 10) as spent:
                await asyncio.sleep(0.2)
                spent.settle(actual)
            entered[number] += 1

    async def main() -> None:
        await asyncio.gather(*[work(number) for number in range(len(limiters)) for _ in range(16)])

    clock.run(main())
    return entered


@pytest.mark.parametrize("quota", ["400/s", "400/s burst 20"])
def test_a_process_far_from_the_store_gets_its_part(quota: str) -> None:
    """Whoever is nearest does not get the units each time that there are some, and all of them are used."""
    entered = blocks(quota, 10)
    assert entered[3] >= 0.6 * entered.total() / len(LATENCIES)
    assert entered.total() >= 0.95 * 40 * SECONDS


def test_callers_of_a_process_spend_in_the_order_in_which_they_come() -> None:
    """Those whose first answer is still on its way, too: nobody overtakes more than one other."""
    clock, entered = SteppedClock(), list[int]()
    limiter = Limiter("200/s burst 1", store=StoreElsewhere(MemoryStore(clock=clock), 0.005))

    async def call(number: int) -> None:
        await asyncio.sleep(number * 0.0002)
        async with limiter.spend("key", 1):
            entered.append(number)

    async def main() -> None:
        await asyncio.gather(*map(call, range(60)))

    clock.run(main())
    assert max(sum(each > number for each in entered[: entered.index(number)]) for number in entered) <= 1


# What comes back


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
