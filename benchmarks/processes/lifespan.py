"""Starts an app up and shuts it down, as a server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Message


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[dict[str, Any]]:
    """Yield the state that each request carries. Raises ``RuntimeError`` if the app does not start up."""
    state: dict[str, Any] = {}
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}

    async def run() -> None:
        await app(scope, to_app.get, from_app.put)

    task = asyncio.create_task(run())
    await to_app.put({"type": "lifespan.startup"})
    started = await from_app.get()
    if started["type"] != "lifespan.startup.complete":
        raise RuntimeError(started.get("message") or "the app did not start up")
    yield state
    await to_app.put({"type": "lifespan.shutdown"})
    await task
