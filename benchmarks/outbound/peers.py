"""What waits for slots: each peer is set up for even spacing, or for the smallest burst that it allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import count
from typing import Any

RATE = 100
OPEN = 10_000_000
"""A rate at which no call waits."""

WITHIN = 10.0
"""Seconds for one figure; a peer that needs longer has none."""

Acquire = Callable[[str], Awaitable[Any]]
"""Wait for a slot under a key."""


def ours(rate: int) -> Acquire:
    from asgi_ratelimit import pace

    @pace(f"{rate}/s burst {rate if rate == OPEN else 1}", key=lambda key: key)
    async def call(key: str) -> None: ...

    return call


def aiolimiter(rate: int) -> Acquire:
    from aiolimiter import AsyncLimiter

    limiter_of = cache(lambda key: AsyncLimiter(1, 1 / rate))
    return lambda key: limiter_of(key).acquire()


def pyrate_limiter(rate: int) -> Acquire:
    from pyrate_limiter import Limiter, Rate

    spacing = Rate(1, 1000 // rate) if rate <= 1000 else Rate(rate // 1000, 1)
    limiter_of = cache(lambda key: Limiter(spacing))
    return lambda key: limiter_of(key).try_acquire_async(key)


def steindamm(rate: int) -> Acquire:
    from steindamm import AsyncLocalTokenBucket

    async def acquire(key: str) -> None:
        settings = {"capacity": 1, "refill_frequency": 1 / rate, "refill_amount": 1, "max_sleep": 0}
        async with AsyncLocalTokenBucket(name=f"{rate} {key}", **settings):
            pass

    return acquire


def bare_sleep(rate: int) -> Acquire:
    """No limiter: each caller sleeps until its slot."""
    numbers = count()
    return lambda key: asyncio.sleep(0 if rate == OPEN else next(numbers) / rate)


def throttled(rate: int) -> Acquire:
    from throttled.asyncio import Throttled

    limiter = Throttled(using="gcra", quota=f"{rate}/s burst {rate if rate == OPEN else 1}", timeout=60)
    acquire: Acquire = limiter.limit
    return acquire


PEERS = {
    "bare sleep": bare_sleep,
    "ours": ours,
    "aiolimiter": aiolimiter,
    "pyrate-limiter": pyrate_limiter,
    "steindamm": steindamm,
    "throttled-py": throttled,
}
