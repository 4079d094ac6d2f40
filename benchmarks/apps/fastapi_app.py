"""The same app in FastAPI, in its own module, so that other subjects do not import FastAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.responses import Response


async def hello() -> Response:
    return PlainTextResponse("hello")


async def greeting() -> dict[str, str]:
    """An endpoint whose value FastAPI turns into an answer, with the headers that dependencies have set."""
    return {"hello": "world"}


def fastapi_app(
    dependencies: Sequence[Any] = (), endpoint: Callable[..., Awaitable[Any]] = hello, **options: Any
) -> FastAPI:
    app = FastAPI(openapi_url=None, **options)
    app.get("/", dependencies=list(dependencies))(endpoint)
    return app
