"""Errors of the app that nobody handles: Starlette answers them outside of all middleware, past our headers."""

from __future__ import annotations

from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


def would_answer(middleware: ASGIApp, scope: Scope) -> bool:
    """Whether Starlette would answer an error of the app outside of a middleware, past its headers, and by default.

    Its handlers for 500 and ``Exception`` are left to run there: they may have effects, and must not run twice.
    So is everything where other middleware outside of it, which may catch the error, is not the framework's own.
    """
    layer = getattr(scope.get("app"), "middleware_stack", None)
    if not isinstance(layer, ServerErrorMiddleware) or layer.handler is not None or scope["type"] != "http":
        return False
    while _lets_errors_through(layer):
        layer = getattr(layer, "app", None)
    return layer is middleware


def is_unexpected(error: Exception) -> bool:
    """Whether it is an error of the app, and not one by which the framework steers itself."""
    return not isinstance(error, HTTPException) and not _is_of_framework(error)


def _is_of_framework(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] in ("starlette", "fastapi")


def _lets_errors_through(layer: object) -> bool:
    return _is_of_framework(layer) and not isinstance(layer, (BaseHTTPMiddleware, ExceptionMiddleware))


async def answer_error(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as Starlette would, and raise the error again."""

    async def failed(scope: Scope, receive: Receive, send: Send) -> NoReturn:
        raise error

    await ServerErrorMiddleware(failed, debug=scope["app"].debug)(scope, receive, send)
