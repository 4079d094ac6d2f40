"""An app whose limits are in a file, and which says which of several workers has answered."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import RateLimitMiddleware, RedisStore


def everybody(connection: HTTPConnection) -> str:
    """One key for all."""
    return "everybody"


async def worker(request: Request) -> PlainTextResponse:
    """The process that has answered."""
    return PlainTextResponse(str(os.getpid()))


app = Starlette(routes=[Route("/", worker), Route("/steady", worker)])
store = RedisStore(os.environ["STORE"], timeout=10, on_error="deny")
app.add_middleware(RateLimitMiddleware, key=everybody, store=store, config=os.environ["LIMITS"])
