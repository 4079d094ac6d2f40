"""An app whose requests wait for their slots, over the store, quota and delays that the environment names.

Its endpoints say when the request was let in, by the clock of the store, and how many are under way.
"""

from __future__ import annotations

import os
from hashlib import sha256

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule, limits
from asgi_ratelimit.keys import header

STORE = os.environ.get("STORE", "memory://")


async def slot(request: Request) -> Response:
    """The process, and the time of the slot."""
    (decision,) = limits(request).decisions
    return JSONResponse({"process": os.getpid(), "ready_at": decision.ready_at, "delay": decision.delay})


async def digest(request: Request) -> Response:
    """What has arrived of the body."""
    body = await request.body()
    return JSONResponse({"size": len(body), "digest": sha256(body).hexdigest()})


async def under_way(request: Request) -> Response:
    """How many requests there are, besides this one."""
    return JSONResponse(app.count - 1)


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


routes = [Route("/", slot), Route("/digest", digest, methods=["POST"]), Route("/under-way", under_way)]
limited = Starlette(routes=routes)
limited.add_middleware(
    RateLimitMiddleware,
    quota=os.environ.get("QUOTA", "10/s burst 1"),
    key=header("x-client"),
    rules=[Rule("/under-way", None)],
    store=MemoryStore() if STORE == "memory://" else RedisStore(STORE, timeout=20.0),
    max_delay=float(os.environ.get("MAX_DELAY", "60")),
)
app = Counted(limited)
