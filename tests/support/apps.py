"""Apps that a real server runs for the tests: limits by the header x-client, over the store that STORE names.

One for limits of requests, one for limits by outcome and of WebSockets, and one whose requests wait for their slots.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from hashlib import sha256

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule, Store, limits
from asgi_ratelimit.keys import header

STORE = os.environ.get("STORE", "memory://")
# Seconds that a take may last: on a busy machine none must fall back to this process's own memory, unless asked to.
TIMEOUT = float(os.environ.get("TIMEOUT", "20"))
REPLICAS = int(os.environ.get("REPLICAS", "1"))


def limit(quota: str | None, *rules: Rule, **options: float) -> Middleware:
    """A middleware on a store of its own."""
    store: Store = MemoryStore()
    if STORE != "memory://":
        store = RedisStore(STORE, timeout=TIMEOUT, replicas=REPLICAS)
    return Middleware(RateLimitMiddleware, quota, key=header("x-client"), rules=rules, store=store, **options)


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
    middleware=[limit(os.environ.get("QUOTA", "10/hour"), Rule("/free/{rest:path}", None))],
)


# Limits by outcome, and of WebSockets


async def endless(request: Request) -> Response:
    """Kilobytes, until nobody listens any more."""

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    return StreamingResponse(chunks())


def kilobytes(status: int, headers: Headers, sent: int) -> float:
    return sent / 1000


async def repeat(session: WebSocket) -> None:
    """Says back what it hears, and which it was."""
    await session.accept()
    number = 0
    async for text in session.iter_text():
        number += 1
        await session.send_text(f"{number} {text}")


inbound_app = Starlette(
    routes=[
        Route("/endless", endless),
        Route("/kilobytes", PlainTextResponse("hello")),
        WebSocketRoute("/shut", repeat),
    ],
    middleware=[
        limit(
            None,
            Rule("/endless", "1000000/day", settle=kilobytes, name="kilobytes"),
            Rule("/kilobytes", "1000000/day", name="kilobytes"),
            Rule("/shut", "2/hour", messages="3/hour"),
        )
    ],
)


# Requests that wait


async def slot(request: Request) -> Response:
    """The process, and the time of the slot by the clock of the store."""
    (decision,) = limits(request).decisions
    return JSONResponse({"process": os.getpid(), "ready_at": decision.ready_at, "delay": decision.delay})


async def digest(request: Request) -> Response:
    """What has arrived of the body."""
    body = await request.body()
    return JSONResponse({"size": len(body), "digest": sha256(body).hexdigest()})


async def under_way(request: Request) -> Response:
    """How many requests there are, besides this one."""
    return JSONResponse(waiting_app.count - 1)


class Counted:
    """An app around another one: counts the requests that are under way."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] != "lifespan"
        self.count += is_request
        try:
            await self._app(scope, receive, send)
        finally:
            self.count -= is_request


quota, max_delay = os.environ.get("QUOTA", "10/s burst 1"), float(os.environ.get("MAX_DELAY", "60"))
waiting_app = Counted(
    Starlette(
        routes=[Route("/", slot), Route("/digest", digest, methods=["POST"]), Route("/under-way", under_way)],
        middleware=[limit(quota, Rule("/under-way", None), max_delay=max_delay)],
    )
)
