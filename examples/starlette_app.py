"""A Starlette app with limits: ``uvicorn starlette_app:app`` in this folder.

``ASGI_RATELIMIT_STORE`` is the URL of the store: ``memory://`` by default, or for example ``redis://localhost``.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.keys import header


async def home(request: Request) -> PlainTextResponse:
    """A page under the default limit."""
    return PlainTextResponse("hello\n")


async def login(request: Request) -> PlainTextResponse:
    """A page that attackers try passwords on: a tighter limit in addition."""
    return PlainTextResponse("welcome\n")


async def search(request: Request) -> PlainTextResponse:
    """A page with a slow backend: requests over its limit wait for their turn, for up to 2 seconds."""
    return PlainTextResponse("found\n")


async def health(request: Request) -> PlainTextResponse:
    """The health check of a load balancer: no limit."""
    return PlainTextResponse("fine\n")


async def report(request: Request) -> PlainTextResponse:
    """A page of the mounted app: an additional limit for each API key."""
    return PlainTextResponse(f"report {request.path_params['number']}\n")


RULES = [
    Rule("/login", "3/minute", methods=["POST"]),
    Rule("/api/{path:path}", "2 per 10 seconds", key=header("x-api-key")),
    Rule("/search", "10/second burst 1", key=lambda request: "all", max_delay=2.0),
    Rule("/health", None),
]

api = Starlette(routes=[Route("/reports/{number:int}", report)])
app = Starlette(
    routes=[
        Route("/", home),
        Route("/login", login, methods=["GET", "POST"]),
        Route("/search", search),
        Route("/health", health),
        Mount("/api", api),
    ],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            quota="1/second burst 5",
            key=client_ip(),
            rules=RULES,
            store=os.environ.get("ASGI_RATELIMIT_STORE", "memory://"),
        ),
    ],
)
