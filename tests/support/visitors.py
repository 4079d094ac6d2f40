"""Clients that send requests on a stepped clock, and an app that notes when each of them reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Store
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import BODY, CHUNK, START, Peer, http


@dataclass(eq=False)
class Visitor(Peer):
    """A client that sends one request ``at`` so many seconds from the start, and perhaps goes at another time."""

    path: str = "/"
    at: float = 0.0
    leaves: float | None = None
    client: str = "ann"
    incoming: Iterable[Message] = (CHUNK,)
    headers_sent: Sequence[tuple[bytes, bytes]] = ()
    scope: dict[str, Any] = field(default_factory=dict)
    left: Message = field(default_factory=lambda: {"type": "http.disconnect"})
    entered: float | None = None
    """When the request has reached the app."""
    received: list[Message] = field(default_factory=list)
    """What the app has received."""
    answered: float | None = None

    def __post_init__(self) -> None:
        super().__init__(self.incoming)
        self.gone = asyncio.Event()
        self.is_read = asyncio.Event()

    async def receive(self) -> Message:
        """The next message; when all have come, that the client has gone, as soon as it has."""
        self.reads += 1
        self.is_read.set()
        if self.waiting and not self.gone.is_set():
            return self.waiting.pop(0)
        await self.gone.wait()
        return self.left

    async def enter(self, now: float, receive: Receive, send: Send) -> None:
        """What the app does with the request: it receives all messages, and answers."""
        self.entered = now
        for _ in self.incoming:
            self.received.append(await receive())
        for message in (START, BODY) if self.scope.get("type") != "websocket" else ({"type": "websocket.accept"},):
            await send(message)

    @property
    def delay(self) -> str | None:
        """What the answer says of how long the request has waited."""
        return self.headers.get("x-ratelimit-delay")


class Site:
    """An app behind a middleware that limits by the header x-client, on a clock that the event loop moves.

    The app reads as many messages as a visitor sends, and answers.
    """

    def __init__(self, quota: Any = None, *, store: Store | None = None, **options: Any) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(clock=self.clock) if store is None else store
        options = {"key": header("x-client"), **options}
        self.middleware = RateLimitMiddleware(self._app, quota, store=self.store, **options)
        # What the visitors visit.
        self.app: ASGIApp = self.middleware
        self._start = self.clock.now

    @property
    def now(self) -> float:
        """Seconds from the start."""
        return round(self.clock.now - self._start, 6)

    def run(self, *visitors: Visitor) -> list[float | None]:
        """When the requests of these visitors have reached the app; ``None`` for those that have not."""
        return self.clock.run(self.visit(*visitors))

    async def visit(self, *visitors: Visitor) -> list[float | None]:
        """``run`` within a loop."""
        await asyncio.gather(*map(self._visit, visitors))
        return [visitor.entered for visitor in visitors]

    async def _visit(self, visitor: Visitor) -> None:
        await asyncio.sleep(visitor.at - self.now)
        leaving = asyncio.ensure_future(self._leave(visitor))
        headers = [(b"x-client", visitor.client.encode()), *visitor.headers_sent]
        scope = http(visitor.path, **{"headers": headers, "visitor": visitor, **visitor.scope})
        await self.app(scope, visitor.receive, visitor.send)
        visitor.answered = self.now
        leaving.cancel()

    async def _leave(self, visitor: Visitor) -> None:
        if visitor.leaves is not None:
            await asyncio.sleep(visitor.leaves - self.now)
            visitor.gone.set()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["visitor"].enter(self.now, receive, send)
