"""limits: its asynchronous fixed window, the cheapest strategy, in a short middleware, because it has none."""

from __future__ import annotations

from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..apps.starlette_app import refuse, starlette_app
from ..subject import Quota, Where


class LimitsMiddleware:
    def __init__(self, app: ASGIApp, limiter: FixedWindowRateLimiter, item: RateLimitItem) -> None:
        self.app = app
        self.limiter = limiter
        self.item = item

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await self.limiter.hit(self.item, scope["client"][0]):
            await refuse(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def limiter_at(where: Where, url: str) -> FixedWindowRateLimiter:
    redis = where == "redis"
    return FixedWindowRateLimiter(RedisStorage(f"async+{url}", implementation="redispy") if redis else MemoryStorage())


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(LimitsMiddleware, limiter=limiter_at(where, url), item=parse(str(quota))))
