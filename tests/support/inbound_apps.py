"""Apps that a real server runs for the tests of outcomes and WebSockets, over the store that STORE names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from fastapi import WebSocket
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.keys import header

STORE = os.environ.get("STORE", "memory://")


async def endless(request: Request) -> Response:
    """Kilobytes, until nobody listens any more."""

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    return StreamingResponse(chunks())


def kilobytes(status: int, headers: Headers, sent: int) -> float:
    return sent / 1000


async def echo(session: WebSocket) -> None:
    """Says back what it hears, and which it was."""
    await session.accept()
    number = 0
    async for text in session.iter_text():
        number += 1
        await session.send_text(f"{number} {text}")


# Limits by outcome, and of WebSockets.
inbound_app = Starlette(
    routes=[Route("/endless", endless), Route("/kilobytes", PlainTextResponse("hello")), WebSocketRoute("/shut", echo)],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            rules=[
                Rule("/endless", "1000000/day", settle=kilobytes, name="kilobytes"),
                Rule("/kilobytes", "1000000/day", name="kilobytes"),
                Rule("/shut", "2/hour", messages="3/hour"),
            ],
            store=MemoryStore() if STORE == "memory://" else RedisStore(STORE, timeout=20.0),
            key=header("x-client"),
        )
    ],
)
