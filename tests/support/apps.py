"""Apps that a real server runs for the tests: limits by the header x-client, over the store that STORE names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.keys import header

STORE = os.environ.get("STORE", "memory://")
QUOTA = os.environ.get("QUOTA", "10/hour")
# Seconds that a take may last: on a busy machine none must fall back to this process's own memory, unless asked to.
TIMEOUT = float(os.environ.get("TIMEOUT", "20"))
REPLICAS = int(os.environ.get("REPLICAS", "1"))


async def who(request: Request) -> Response:
    """The process that answers."""
    return PlainTextResponse(str(os.getpid()))


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def boom(request: Request) -> Response:
    raise ZeroDivisionError


async def teapot(request: Request) -> Response:
    raise HTTPException(418)


_released = asyncio.Event()


async def stream(request: Request) -> Response:
    """The second half comes only when somebody who has seen the first one asks for it."""
    _released.clear()

    async def halves() -> AsyncIterator[str]:
        yield "first,"
        await _released.wait()
        yield "second"

    return StreamingResponse(halves())


async def release(request: Request) -> Response:
    _released.set()
    return Response()


starlette_app = Starlette(
    routes=[
        Route("/who", who),
        Route("/free/who", who),
        Route("/echo", echo, methods=["POST"]),
        Route("/boom", boom),
        Route("/teapot", teapot),
        Route("/stream", stream),
        Route("/free/release", release),
        Mount("/inner", Starlette(routes=[Route("/boom", boom)])),
    ],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            QUOTA,
            key=header("x-client"),
            rules=[Rule("/free/{rest:path}", None)],
            store=MemoryStore() if STORE == "memory://" else RedisStore(STORE, timeout=TIMEOUT, replicas=REPLICAS),
        )
    ],
)
