"""pyrate-limiter: token buckets of constant size, one for each client, in a short middleware."""

from __future__ import annotations

from pyrate_limiter import BucketFactory, Duration, Limiter, Rate, RateItem, RedisStateStore, StateBucket, TokenBucket
from redis.asyncio import Redis
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..apps.starlette_app import refuse, starlette_app
from ..subject import Quota, Where


class Buckets(BucketFactory):
    """A bucket for each name, never removed, as its documentation does for limits by key."""

    def __init__(self, rates: list[Rate], redis: Redis | None) -> None:
        self.rates = rates
        self.redis = redis
        self.buckets: dict[str, StateBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.get(RateItem(name, 0)).now(), weight)  # type: ignore[no-untyped-call]

    def get(self, item: RateItem) -> StateBucket:
        bucket = self.buckets.get(item.name)
        if bucket is None:
            store = RedisStateStore(self.redis, item.name) if self.redis else None
            bucket = self.buckets[item.name] = StateBucket(self.rates, TokenBucket(), store)
        return bucket


class PyrateMiddleware:
    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        self.app = app
        self.limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await self.limiter.try_acquire_async(scope["client"][0], blocking=False):
            await refuse(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def limiter_at(where: Where, url: str, quota: Quota) -> Limiter:
    rates = [Rate(quota.limit, Duration[quota.period.upper()])]
    return Limiter(Buckets(rates, Redis.from_url(url) if where == "redis" else None))


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(PyrateMiddleware, limiter=limiter_at(where, url, quota)))
