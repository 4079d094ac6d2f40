"""The yardstick for Redis: one EVALSHA through redis-py for each request, and nothing else."""

from __future__ import annotations

import time

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..apps.starlette_app import refuse, starlette_app
from ..subject import Quota, Where

SCRIPT = """
local limit, period, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(bucket[1]) or limit, tonumber(bucket[2]) or now
level = math.min(limit, level + math.max(0, now - at) * limit / period)
if level < 1 then return 0 end
redis.call('HSET', KEYS[1], 'level', level - 1, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(period))
return 1
"""


def script_at(url: str) -> AsyncScript:
    return Redis.from_url(url).register_script(SCRIPT)


class PlainMiddleware:
    def __init__(self, app: ASGIApp, url: str, quota: Quota) -> None:
        self.app = app
        self.take = script_at(url)
        self.numbers = (quota.limit, quota.seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await self.take([scope["client"][0]], [*self.numbers, time.time()]):
            await refuse(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(PlainMiddleware, url=url, quota=quota))
