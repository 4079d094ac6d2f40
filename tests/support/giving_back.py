"""The quotas, and what callers do with them, that the tests of giving back share."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket

BUCKET = TokenBucket(10, burst=10)
EVEN = TokenBucket(10, burst=1)
SLOW = TokenBucket(10, burst=11, burst_allowance_factor=0.5)
FIXED = FixedWindow(10, 10)
ROLLING = RollingWindow(10, 10, buckets=10)
KINDS = pytest.mark.parametrize("quota", [BUCKET, FIXED, ROLLING], ids=["bucket", "fixed", "rolling"])
QUEUES = pytest.mark.parametrize("quota", [EVEN, FIXED, ROLLING], ids=["even", "fixed", "rolling"])


async def remaining_units(limiter: Limiter) -> int:
    """The units that are left of the key."""
    return (await limiter.peek("key")).remaining


async def delays(limiter: Limiter, callers: int) -> list[float]:
    """The delays of so many callers that book one unit each."""
    return [(await limiter.pace("key")).delay for _ in range(callers)]


async def cancel(limiter: Limiter, decisions: Iterable[Decision]) -> None:
    """Cancel all of these, in this order."""
    for decision in decisions:
        await limiter.cancel(decision)
