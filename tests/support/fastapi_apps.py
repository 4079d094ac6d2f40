"""The app of FastAPI that a real server runs for the tests; apart, since its import takes longer than a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request

from asgi_ratelimit import Rule
from tests.support.apps import LifespanWriter, middleware


def a_fastapi_app() -> FastAPI:
    """Two routers deep, with a lifespan whose state the endpoints see."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        yield {"greeting": "hello"}

    leaf = APIRouter(prefix="/leaf")

    @leaf.get("/{number}")
    async def number(number: int, request: Request) -> str:
        return f"{request.state.greeting} {number}"

    branch = APIRouter(prefix="/branch")
    branch.include_router(leaf)
    rule = Rule("/branch/leaf/{number:int}", "2/minute", only=True)
    app = FastAPI(lifespan=lifespan, middleware=middleware(rule))
    app.include_router(branch)
    return app


fastapi_app = LifespanWriter(a_fastapi_app())
