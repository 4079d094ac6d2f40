"""fastapi-limiter: a dependency of a route, over a bucket of pyrate-limiter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi_limiter.depends import RateLimiter
from pyrate_limiter import Duration, Limiter, Rate, RedisBucket
from redis.asyncio import Redis
from starlette.types import ASGIApp

from ..apps.fastapi_app import fastapi_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota, **options: Any) -> ASGIApp:
    rates = [Rate(quota.limit, Duration[quota.period.upper()])]
    if where == "memory":
        return fastapi_app([Depends(RateLimiter(Limiter(rates)))], **options)
    limiters: list[RateLimiter] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        bucket = await RedisBucket.init(rates, Redis.from_url(url), "bucket")
        limiters.append(RateLimiter(Limiter(bucket)))
        yield

    async def limited(request: Request, response: Response) -> None:
        await limiters[0](request, response)

    return fastapi_app([Depends(limited)], lifespan=lifespan, **options)
