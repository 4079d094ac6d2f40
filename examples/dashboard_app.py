"""A Starlette app with limits, and the page that shows and changes them: ``uvicorn dashboard_app:app`` in this folder.

The page is at http://127.0.0.1:8000/limits/, for this machine only. ``ASGI_RATELIMIT_STORE`` is the URL of the store:
``memory://`` by default, or ``redis://localhost`` for several workers.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import RateLimitMiddleware, Rule, open_store
from asgi_ratelimit.dashboard import dashboard


async def home(request: Request) -> PlainTextResponse:
    """A page under the limit for all."""
    return PlainTextResponse("hello\n")


async def login(request: Request) -> PlainTextResponse:
    """A page under a tighter limit as well."""
    return PlainTextResponse("welcome\n")


def is_local(request: Request) -> bool:
    """Whether a request comes from this machine. Behind a proxy, ask who is logged in instead."""
    return request.client is not None and request.client.host in ("127.0.0.1", "::1")


store = open_store(os.environ.get("ASGI_RATELIMIT_STORE", "memory://"))
rules = [
    Rule("/login", "5/minute", name="login"),
    Rule("/limits/{path:path}", None),  # the page itself is not limited
]
app = Starlette(
    routes=[
        Route("/", home),
        Route("/login", login, methods=["GET", "POST"]),
        Mount("/limits", dashboard(store, allow=is_local, show_keys=True)),
    ],
    middleware=[Middleware(RateLimitMiddleware, quota="100/minute", rules=rules, store=store, name="site")],
)
