"""The same app in FastAPI, in its own module, so that other subjects do not import FastAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.responses import Response


async def hello() -> Response:
    return PlainTextResponse("hello")


def fastapi_app(dependencies: Sequence[Any] = (), **options: Any) -> FastAPI:
    app = FastAPI(openapi_url=None, **options)
    app.get("/", dependencies=list(dependencies))(hello)
    return app
