"""``acquire``: books a slot, and returns when it has come."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PaceTimeout, SyncLimiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock

EVEN = TokenBucket(10, burst=1)


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


def test_a_cost_above_the_burst_goes_from_a_full_bucket_without_a_wait(clock: SteppedClock) -> None:
    """A caller that does not wait gets it as well; while the bucket is not full, the error says when it will be."""
    limiter = Limiter(EVEN, store=MemoryStore(clock=clock))

    async def main() -> None:
        assert (await limiter.acquire("key", 5, max_delay=0)).delay == 0.0
        with pytest.raises(PaceTimeout, match="max_delay is 0 s") as caught:
            await limiter.acquire("key", 5, max_delay=0)
        assert caught.value.decision.retry_after == pytest.approx(0.5, abs=1e-5)

    clock.run(main())


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


def test_without_async_it_blocks_until_the_slot_has_come(clock: SteppedClock) -> None:
    """In the same queue as with it, and with the same errors."""
    limiter = SyncLimiter(EVEN, store=MemoryStore(clock=clock))
    assert [limiter.acquire("key").ready_at for _ in range(3)] == [0.0, 0.1, 0.2]
    assert clock.now == 0.2
    with pytest.raises(PaceTimeout):
        limiter.acquire("key", 5, max_delay=0.05)
    assert clock.now == 0.2
