"""Callers that wait under an operation: whatever they do, its slot stays booked, and is charged once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.waiter import PaceTimeout
from tests.support.repeating import ProcessStore

EVEN = TokenBucket(1, 60, burst=1)
ALL_KINDS = {
    "even": EVEN,
    "bucket": TokenBucket(2, 120),
    "fixed": FixedWindow(1, 60),
    "rolling": RollingWindow(1, 60),
}
KINDS = pytest.mark.parametrize("quota", list(ALL_KINDS.values()), ids=list(ALL_KINDS))


# Callers that give up, one by one


@pytest.fixture(params=["memory", "other process", "redis"])
async def stores(request: pytest.FixtureRequest, clock: SteppedClock) -> AsyncIterator[tuple[Store, Store]]:
    """The stores of the caller that books first, and of one that repeats the operation, over the same buckets."""
    made: tuple[Store, ...]
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        made = RedisStore(url, clock=clock, on_error="deny"), RedisStore(url, clock=clock, on_error="deny")
    else:
        shared = MemoryStore(clock=clock)
        made = (shared, shared) if request.param == "memory" else (ProcessStore(shared), ProcessStore(shared))
    yield made[0], made[1]
    for store in made:
        await store.aclose()


async def booked_ahead(store: Store, quota: Quota) -> tuple[Limiter, Decision]:
    """A limiter whose units are in use, and the decision that has booked the next slot for the operation ``job``."""
    limiter = Limiter(quota, store=store)
    assert await limiter.rate_limit("key", quota.limit)
    booked = await limiter.pace("key", operation="job")
    assert booked.delay
    return limiter, booked


async def answered(limiter: Limiter) -> None:
    """Return when all that was sent before is answered."""
    for _ in range(5):
        await asyncio.sleep(0)
        await limiter.peek("key")


async def require_booked(limiter: Limiter, booked: Decision) -> None:
    """The slot is still booked, and the operation answered with it."""
    assert await limiter.waiting("key") == 1
    assert (await limiter.pace("key", operation="job")).ready_at == booked.ready_at


@KINDS
@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_while_it_waits(stores: tuple[Store, Store], quota: Quota) -> None:
    """The slot that it only repeats stays booked."""
    first, booked = await booked_ahead(stores[0], quota)
    other = Limiter(quota, store=stores[1])
    waiting = asyncio.ensure_future(other.acquire("key", operation="job"))
    await answered(other)
    waiting.cancel()
    await asyncio.wait([waiting])
    await require_booked(first, booked)


@KINDS
@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_while_it_books(stores: tuple[Store, Store], quota: Quota) -> None:
    """The answer comes when it is gone."""
    first, booked = await booked_ahead(stores[0], quota)
    other = Limiter(quota, store=stores[1])
    spending = other.spend("key", 1, operation="job")
    waiting = [
        asyncio.ensure_future(other.acquire("key", operation="job")),
        asyncio.ensure_future(spending.__aenter__()),
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await answered(other)
    await require_booked(first, booked)


@KINDS
@pytest.mark.anyio
async def test_a_caller_for_which_the_slot_is_too_far_away(stores: tuple[Store, Store], quota: Quota) -> None:
    """It raises at once, as one that would have booked the slot itself."""
    first, booked = await booked_ahead(stores[0], quota)
    other = Limiter(quota, store=stores[1])
    with pytest.raises(PaceTimeout):
        await other.acquire("key", operation="job", max_delay=1)
    await require_booked(first, booked)


SHORT = TokenBucket(10, burst=1)


@pytest.mark.anyio
async def test_a_late_caller_uses_the_slot(stores: tuple[Store, Store], clock: SteppedClock) -> None:
    """Of ``acquire`` or ``spend``: it wakes long after the slot, and is not charged for another one."""
    first = Limiter(SHORT, store=stores[0])
    await first.rate_limit("key")
    booked = await first.pace("key", operation="job")
    other = Limiter(SHORT, store=stores[1])
    spending = other.spend("key", 1, operation="job")
    waiting = [
        asyncio.ensure_future(other.acquire("key", operation="job")),
        asyncio.ensure_future(spending.__aenter__()),
    ]
    await answered(other)
    clock.advance(10)
    assert (await waiting[0]).ready_at == (await waiting[1]).decision.ready_at == booked.ready_at
    await spending.__aexit__(None, None, None)
    assert await first.rate_limit("key")


# Without async


# When callers leave


@pytest.fixture(params=["memory", "other process"])
def shared(request: pytest.FixtureRequest) -> tuple[SteppedClock, Store]:
    """A clock at 0, and a store in this process or elsewhere."""
    store = MemoryStore(clock=SteppedClock(0))
    return store.clock, store if request.param == "memory" else ProcessStore(store)  # type: ignore[return-value]


@KINDS
def test_callers_of_one_operation_leave_together(shared: tuple[SteppedClock, Store], quota: Quota) -> None:
    """At the slot that was charged once: none counts as a call of its own, and none is late because of the others."""
    clock, store = shared
    limiter, left = Limiter(quota, store=store), list[float]()

    async def call() -> None:
        await limiter.acquire("key", operation="job")
        left.append(clock.now)

    async def main() -> None:
        await limiter.rate_limit("key", quota.limit)
        slot = (await limiter.peek("key")).retry_after
        await asyncio.gather(*[call() for _ in range(3)])
        assert left == [slot] * 3
        assert await limiter.waiting("key") == 0

    clock.run(main())


@KINDS
def test_a_caller_that_repeats_late(shared: tuple[SteppedClock, Store], quota: Quota) -> None:
    """It waits for what is left of the delay, and not at all if the slot has come."""
    clock, store = shared

    async def main() -> None:
        limiter, booked = await booked_ahead(store, quota)
        clock.advance(30)
        with pytest.raises(PaceTimeout):
            await limiter.acquire("key", operation="job", max_delay=booked.delay - 31)
        await limiter.acquire("key", operation="job", max_delay=booked.delay - 30)
        assert clock.now == booked.ready_at
        clock.advance(200)
        assert (await limiter.acquire("key", operation="job", max_delay=0)).asked_us == clock.now_us()
        assert clock.now == booked.ready_at + 200
        assert await limiter.rate_limit("key")  # nothing was charged since

    clock.run(main())
