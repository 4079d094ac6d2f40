"""The beginning and the end of the middleware, and of requests that are given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anyio import lowlevel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, crash, http, limited, ok, sends, starlette
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that breaks before it answers."""
    raise ZeroDivisionError("before the answer")


class NotedStore(MemoryStore):
    """A store that records when it is closed."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes

    async def aclose(self) -> None:
        self._notes.append("store closed")


@pytest.mark.parametrize("outcome", ["complete", "failed"])
async def test_the_store_is_closed_after_the_app(outcome: str) -> None:
    """The app may use it during shutdown; the server gets the last message after the store is closed."""
    notes: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        notes.append("app shut down")
        await send({"type": f"lifespan.shutdown.{outcome}"})

    async def send(message: Message) -> None:
        notes.append(message["type"])

    peer = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await RateLimitMiddleware(app, "1/s", store=NotedStore(notes))({"type": "lifespan"}, peer.receive, send)
    assert notes == [
        "lifespan.startup.complete",
        "app shut down",
        "store closed",
        f"lifespan.shutdown.{outcome}",
    ]


async def test_a_failed_start_up_passes() -> None:
    """The server gets the message of the app as it is."""
    failed = {"type": "lifespan.startup.failed", "message": "no database"}
    peer = Peer()
    await limited(sends(failed))({"type": "lifespan"}, peer.receive, peer.send)
    assert peer.sent == [failed]


async def test_an_app_without_lifespan_raises_as_before() -> None:
    """Its error reaches the server, which then runs without a lifespan."""
    assert (await crash(limited(fails), {"type": "lifespan"})).sent == []


async def test_a_start_up_that_raises_is_reported() -> None:
    """Starlette reports the error of a lifespan, and raises it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    peer = Peer([{"type": "lifespan.startup"}])
    with pytest.raises(ZeroDivisionError):
        await starlette(lifespan=lifespan)({"type": "lifespan"}, peer.receive, peer.send)
    assert [message["type"] for message in peer.sent] == ["lifespan.startup.failed"]


async def test_a_store_serves_again_after_it_was_closed(redis_url: str) -> None:
    """An app that is started twice in one process, as in tests, goes on with the same store."""
    store = RedisStore(redis_url)
    app = Starlette(routes=[Mount("/", ok)], middleware=[Middleware(RateLimitMiddleware, "10/hour", store=store)])
    for left in (9, 8):
        peer = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        assert (await ask(app)).headers["ratelimit"].startswith(f'"per-hour";r={left};')
        await app({"type": "lifespan"}, peer.receive, peer.send)
        assert peer.sent[-1] == {"type": "lifespan.shutdown.complete"}


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


async def test_a_request_that_is_given_up_at_redis_misleads_nobody() -> None:
    """Cancelled while it waits for Redis, its late answer is not taken for that of the next request."""
    with RedisServer() as server:
        store = RedisStore(server.url, timeout=20)
        app = RateLimitMiddleware(ok, "10/hour", store=store)
        await ask(app)
        server.pause()
        given_up = [asyncio.create_task(ask(app)) for _ in range(20)]
        for _ in range(50):
            await lowlevel.checkpoint()
        for task in given_up:
            task.cancel()
        assert {type(end) for end in await asyncio.gather(*given_up, return_exceptions=True)} == {
            asyncio.CancelledError
        }
        server.resume()
        others = [http(client=(f"198.51.100.{n}", 1)) for n in range(20)]
        answers = await asyncio.gather(*[ask(app, scope) for scope in others])
        assert {peer.headers["ratelimit"][:14] for peer in answers} == {'"per-hour";r=9'}
        await store.aclose()
