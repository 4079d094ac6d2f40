"""The app that every limiter protects: one route, which answers hello."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def starlette_app(
    *middleware: Middleware, endpoint: Callable[[Request], Awaitable[Response]] = hello, **options: Any
) -> Starlette:
    return Starlette(routes=[Route("/", endpoint)], middleware=list(middleware), **options)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 429, for limiters without a middleware of their own."""
    await PlainTextResponse("slow down", 429)(scope, receive, send)
