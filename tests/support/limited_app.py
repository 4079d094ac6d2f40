"""An app that is limited as its environment says, for all callers together."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import RateLimitMiddleware


def everybody(connection: HTTPConnection) -> str:
    """One key for all."""
    return "everybody"


async def hello(request: Request) -> PlainTextResponse:
    """What there is a limit for."""
    return PlainTextResponse("hello")


app = Starlette(routes=[Route("/", hello)])
app.add_middleware(RateLimitMiddleware, quota=os.environ["QUOTA"], key=everybody)
