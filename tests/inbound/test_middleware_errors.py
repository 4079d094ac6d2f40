"""Errors of the app behind the middleware pass as they are; the store is closed after the app."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, crash, http, limited, ok, sends, starlette, websocket

pytestmark = pytest.mark.anyio


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that breaks before it answers."""
    raise ZeroDivisionError("before the answer")


async def test_the_same_error_reaches_the_server() -> None:
    """What the app raised is what the server logs: the very object."""
    error = ExceptionGroup("several", [ZeroDivisionError()])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    peer = Peer()
    with pytest.raises(ExceptionGroup) as raised:
        await starlette(Mount("/", app))(http(), peer.receive, peer.send)
    assert raised.value is error


# The beginning and the end, and requests that are given up


@pytest.mark.parametrize(
    "ends", [["startup.failed"], ["startup.complete", "shutdown.complete"], ["startup.complete", "shutdown.failed"]]
)
async def test_the_store_is_closed_after_the_app(ends: list[str]) -> None:
    """The app may use it during shutdown; the server gets the last message, as it is, after the store is closed."""
    sent: list[Message] = [{"type": f"lifespan.{each}", "message": "no database"} for each in ends]
    store, peer = MemoryStore(), Peer()
    store.aclose = AsyncMock(side_effect=lambda: peer.sent.append({}))  # type: ignore[method-assign]
    await RateLimitMiddleware(sends(*sent), "1/s", store=store)({"type": "lifespan"}, peer.receive, peer.send)
    assert peer.sent == [*sent[:-1], {}, sent[-1]]


async def test_an_app_without_lifespan_raises_as_before() -> None:
    """Its error reaches the server, which then runs without a lifespan; so does that of a request or handshake."""
    for scope in ({"type": "lifespan"}, http(), websocket()):
        assert (await crash(limited(fails), scope)).sent == []


async def test_a_request_that_is_given_up_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled in the app, it sends nothing and logs nothing, and its charge stands."""
    reached = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await asyncio.Event().wait()

    store, peer = MemoryStore(clock=SteppedClock()), Peer()
    task = asyncio.create_task(RateLimitMiddleware(app, "10/minute", store=store)(http(), peer.receive, peer.send))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [peer.sent, caplog.records] == [[], []]
    after = await ask(RateLimitMiddleware(ok, "10/minute", store=store))
    assert after.headers["ratelimit"] == '"per-minute";r=8;t=6'
