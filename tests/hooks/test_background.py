"""Asynchronous hooks: awaited in the background, in order, bounded, and to the end when the program ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Limiter, PacedTransport, RateLimitMiddleware, SyncLimiter, hooks
from asgi_ratelimit.hooks import Event
from tests.support.asgi import Peer, ask, ok
from tests.support.overriding import until

pytestmark = pytest.mark.anyio


class Recorder:
    """An asynchronous hook that notes each event, once it is let go on."""

    def __init__(self, is_open: bool = True) -> None:
        self.events: list[Event] = []
        self.threads: set[int] = set()
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()

    async def __call__(self, event: Event) -> None:
        self.threads.add(threading.get_ident())
        await self.gate.wait()
        self.events.append(event)


async def test_an_asynchronous_hook_does_not_hold_up_the_request() -> None:
    """The answer is sent before; then it is called with all events, in their order."""
    recorder = Recorder(is_open=False)
    limiter = Limiter("2/minute", hooks=[recorder])
    results = [(await limiter.rate_limit("alice")).allowed for _ in range(3)]
    assert recorder.events == []
    recorder.gate.set()
    await limiter.aclose()
    assert [event.decision.allowed for event in recorder.events] == results == [True, True, False]


async def test_one_event_after_another() -> None:
    """Also where the hook waits for something in between."""
    steps: list[str] = []

    async def hook(event: Event) -> None:
        steps.append("begins")
        await asyncio.sleep(0)
        steps.append("ends")

    async with Limiter("5/minute", hooks=[hook]) as limiter:
        await asyncio.gather(limiter.rate_limit("alice"), limiter.rate_limit("alice"))
    assert steps == ["begins", "ends"] * 2


async def test_what_is_too_much_is_dropped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, and logged once a minute; what waits already is not affected."""
    monkeypatch.setattr(hooks, "MAX_CALLS", 5)
    recorder = Recorder(is_open=False)
    limiter = Limiter("100/minute", hooks=[recorder])
    for _ in range(9):
        await limiter.rate_limit("alice")
    recorder.gate.set()
    await limiter.aclose()
    assert len(recorder.events) == 5
    (message,) = caplog.messages
    assert "was dropped" in message
    assert "5 calls of hooks are waiting" in message


async def test_an_asynchronous_hook_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, once a minute, and called again; the others are called as well. So with one that is cancelled."""
    recorder = Recorder()

    async def broken(event: Event) -> None:
        raise LookupError("no such gauge")

    async def cancelled(event: Event) -> None:
        raise asyncio.CancelledError

    limiter = Limiter("100/minute", hooks=[broken, cancelled, recorder])
    for _ in range(3):
        await limiter.rate_limit("alice")
    await limiter.aclose()
    assert len(recorder.events) == 3
    assert len(caplog.messages) == 2
    assert "no such gauge" in caplog.messages[0]


async def test_they_are_drained_at_lifespan_shutdown() -> None:
    """Before the app shuts down, because they may need what it closes then."""
    recorder = Recorder(is_open=False)
    when_it_shuts_down: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            assert await receive() == {"type": "lifespan.shutdown"}
            when_it_shuts_down.append(len(recorder.events))
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await ok(scope, receive, send)

    middleware = RateLimitMiddleware(app, "5/minute", hooks=[recorder])
    await ask(middleware)
    recorder.gate.set()
    peer = Peer([{"type": "lifespan.shutdown"}])
    await middleware({"type": "lifespan"}, peer.receive, peer.send)
    assert when_it_shuts_down == [1]
    assert peer.sent == [{"type": "lifespan.shutdown.complete"}]


async def test_closing_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that takes long, and what waits behind it, go on while the event loop does."""
    monkeypatch.setattr("asgi_ratelimit.hooks.CLOSE_WITHIN", 0.01)
    recorder = Recorder(is_open=False)
    limiter = Limiter("5/minute", hooks=[recorder])
    for _ in range(3):
        await limiter.rate_limit("alice")
    await limiter.aclose()
    assert recorder.events == []
    recorder.gate.set()
    await until(lambda: len(recorder.events) == 3)


def test_without_an_event_loop_they_run_in_the_background() -> None:
    """On the event loop that code without ``async`` shares; closing waits for them."""
    recorder = Recorder()
    with SyncLimiter("5/minute", hooks=[recorder]) as limiter:
        limiter.rate_limit("alice")
        limiter.acquire("alice")
    assert len(recorder.events) == 2
    answers = httpx.MockTransport(lambda request: httpx.Response(200))
    with httpx.Client(transport=PacedTransport(answers, "9/s", hooks=[recorder])) as client:
        client.get("http://test/")
    assert len(recorder.events) == 3
    assert threading.get_ident() not in recorder.threads
