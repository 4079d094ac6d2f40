"""asgi-ratelimit: a fixed window for each rule, in memory or by a script and a TTL in Redis."""

from __future__ import annotations

from ratelimit import RateLimitMiddleware, Rule
from ratelimit.backends import BaseBackend
from ratelimit.backends.redis import RedisBackend
from ratelimit.backends.simple import MemoryBackend
from redis.asyncio import StrictRedis
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Scope

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where


async def _client(scope: Scope) -> tuple[str, str]:
    return scope["client"][0], "default"


def backend_at(where: Where, url: str) -> BaseBackend:
    return RedisBackend(StrictRedis.from_url(url)) if where == "redis" else MemoryBackend()


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    rules, backend = {"/": [Rule(**{quota.period: quota.limit})]}, backend_at(where, url)
    return starlette_app(Middleware(RateLimitMiddleware, authenticate=_client, backend=backend, config=rules))
