"""throttled-py: its decorator and middleware for FastAPI, with token buckets."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp
from throttled.asyncio import MemoryStore, RedisStore
from throttled.asyncio.contrib.fastapi import (
    Limiter,
    RateLimitExceededError,
    RateLimitMiddleware,
    get_remote_address,
    rate_limit_exceeded_handler,
)

from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    store = RedisStore(server=url) if where == "redis" else MemoryStore()
    rate = f"{quota.limit}/{quota.period[0]} burst {quota.limit}"
    limiter = Limiter(rate, store=store, key_func=get_remote_address)
    app = FastAPI(openapi_url=None)
    app.add_middleware(RateLimitMiddleware)
    app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)

    @app.get("/")
    @limiter.limit()  # type: ignore[untyped-decorator]  # typed where it is installed
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    return app
