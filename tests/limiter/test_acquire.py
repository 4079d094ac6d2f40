"""``acquire``: books a slot, and returns when it has come."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from asgi_ratelimit import Limiter, PaceTimeout, RedisStore, SyncLimiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.late_stores import SlowStore

EVEN = TokenBucket(10, burst=1)


@pytest.fixture
def clock() -> SteppedClock:
    """It starts at a whole second."""
    return SteppedClock(0)


@pytest.mark.parametrize(
    ("quota", "times"),
    [
        (EVEN, [0.0, 0.1, 0.2, 0.3]),
        (TokenBucket(10, burst=3), [0.0, 0.0, 0.0, 0.1]),
        (FixedWindow(2, 1), [0.0, 0.0, 1.0, 1.0]),
        (RollingWindow(2, 10, buckets=10), [0.0, 0.0, 11.0, 11.0]),
    ],
    ids=["even", "burst", "fixed", "rolling"],
)
def test_it_returns_when_the_slot_has_come(clock: SteppedClock, quota: Quota, times: list[float]) -> None:
    """The decision says which slot that was."""
    limiter = Limiter(quota, store=MemoryStore(clock=clock))

    async def call() -> float:
        decision = await limiter.acquire("key")
        assert decision
        assert clock.now == decision.ready_at
        return clock.now

    async def main() -> list[float]:
        return await asyncio.gather(*[call() for _ in times])

    assert clock.run(main()) == times


def test_a_slot_beyond_max_delay_is_not_booked(clock: SteppedClock) -> None:
    """``PaceTimeout`` comes at once, and hooks are called with the refusal, too."""
    seen: list[bool] = []
    limiter = Limiter(EVEN, store=MemoryStore(clock=clock), hooks=[lambda event: seen.append(event.decision.allowed)])

    async def main() -> None:
        await limiter.acquire("key", 3)
        with pytest.raises(PaceTimeout) as raised:
            await limiter.acquire("key", max_delay=0.25)
        assert (clock.now, raised.value.decision.retry_after) == (0.0, pytest.approx(0.05))
        await limiter.acquire("key", max_delay=0.3)
        assert clock.now == 0.3

    clock.run(main())
    assert seen == [True, False, True]


def test_a_caller_that_is_cancelled_while_it_sleeps_gives_its_slot_back(clock: SteppedClock) -> None:
    """Those behind it move up, and the end of the queue moves back."""
    limiter = Limiter(EVEN, store=MemoryStore(clock=clock))

    async def main() -> None:
        calls = [asyncio.ensure_future(limiter.acquire("key")) for _ in range(4)]
        await asyncio.sleep(0.05)
        calls[1].cancel()
        await asyncio.wait(calls)
        assert [call.result().ready_at for call in calls if not call.cancelled()] == [0.0, 0.1, 0.2]
        assert (await limiter.peek("key")).retry_after == pytest.approx(0.1)

    clock.run(main())


def test_a_caller_that_is_cancelled_while_it_books_gives_its_slot_back(clock: SteppedClock) -> None:
    """As soon as the answer is there."""
    limiter = Limiter(TokenBucket(1, burst=1), store=SlowStore(clock=clock))

    async def main() -> None:
        await limiter.acquire("key")
        booking = asyncio.ensure_future(limiter.acquire("key"))
        await asyncio.sleep(0.05)
        booking.cancel()
        await asyncio.wait([booking])
        await asyncio.sleep(0.1)
        assert await limiter.waiting("key") == 0

    clock.run(main())


def test_without_async_it_blocks_until_the_slot_has_come(clock: SteppedClock) -> None:
    """In the same queue as with it, and with the same errors."""
    limiter = SyncLimiter(EVEN, store=MemoryStore(clock=clock))
    assert [limiter.acquire("key").ready_at for _ in range(3)] == [0.0, 0.1, 0.2]
    assert clock.now == 0.2
    with pytest.raises(PaceTimeout):
        limiter.acquire("key", 5, max_delay=0.05)
    assert clock.now == 0.2


def test_over_redis_it_is_the_same(redis_url: str) -> None:
    """With and without ``async``: the calls are as far apart as their slots."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")

    async def main() -> list[float]:
        async with Limiter("50/s burst 1", store=store) as limiter:
            return [(await limiter.acquire("key")).ready_at for _ in range(3)]

    with SyncLimiter("50/s burst 1", store=store) as limiter:
        slots = [limiter.acquire("key").ready_at, *asyncio.run(main()), limiter.acquire("key").ready_at]
    assert all(later - earlier >= 0.02 - 2e-6 for earlier, later in pairwise(slots))
