"""asgi-ratelimit: a fixed window for each rule, in memory or by a script and a TTL in Redis."""

from __future__ import annotations

from ratelimit import RateLimitMiddleware, Rule
from ratelimit.backends.redis import RedisBackend
from ratelimit.backends.simple import MemoryBackend
from redis.asyncio import StrictRedis
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Scope

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where


async def _client(scope: Scope) -> tuple[str, str]:
    return scope["client"][0], "default"


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    backend = RedisBackend(StrictRedis.from_url(url)) if where == "redis" else MemoryBackend()
    rules = {"/": [Rule(**{quota.period: quota.limit})]}
    return starlette_app(Middleware(RateLimitMiddleware, authenticate=_client, backend=backend, config=rules))
