"""Limiters on a Redis, for the tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from asgi_ratelimit import RedisStore
from asgi_ratelimit.limiter.limiter import Limiter
from asgi_ratelimit.quotas import TokenBucket

QUOTA = TokenBucket(10, 3600)  # a unit comes back in six minutes
PATIENT = 30.0  # a deadline that does not pass


@asynccontextmanager
async def limiter_on(source: str | Redis, quota: Any = QUOTA, **options: Any) -> AsyncIterator[Limiter]:
    async with Limiter(quota, store=RedisStore(source, **{"timeout": PATIENT, **options})) as limiter:
        yield limiter


async def require_service(source: str | Redis, **options: Any) -> None:
    """A store on ``source`` counts, in Redis."""
    async with limiter_on(source, **options) as limiter:
        decisions = [await limiter.rate_limit("key") for _ in range(3)]
    assert [(decision.remaining, decision.degraded) for decision in decisions] == [(9, False), (8, False), (7, False)]
