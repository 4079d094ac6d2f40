"""Raw ASGI for tests: scopes, a peer that stands where a server would, and apps behind a limit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi_ratelimit import ConfigurationError, MemoryStore, RateLimitMiddleware
from asgi_ratelimit.testing import SteppedClock

CLIENT = ("192.0.2.1", 50_000)
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"ok"}
CHUNK = {"type": "http.request", "body": b"", "more_body": False}


def http(path: str = "/", **more: Any) -> Scope:
    """The scope of a GET from 192.0.2.1, but for what ``more`` says."""
    return {**_common("http", path), "method": "GET", **more}


def websocket(path: str = "/", **more: Any) -> Scope:
    """The scope of a WebSocket handshake from 192.0.2.1, on a server without extensions."""
    return {**_common("websocket", path), "subprotocols": [], **more}


def _common(kind: str, path: str) -> Scope:
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": CLIENT,
        "server": ("testserver", 80),
    }


async def hello(request: Request) -> Response:
    """An endpoint."""
    return PlainTextResponse("hello")


class Peer:
    """Hands out incoming messages, ``http.disconnect`` after the last, and keeps what is sent."""

    def __init__(self, incoming: Iterable[Message] = (CHUNK,)) -> None:
        self.waiting = list(incoming)
        self.reads = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        self.reads += 1
        return self.waiting.pop(0) if self.waiting else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def starts(self) -> list[Message]:
        """All messages that start an answer."""
        starting = ("http.response.start", "websocket.http.response.start", "websocket.accept")
        return [message for message in self.sent if message["type"] in starting]

    @property
    def status(self) -> int:
        status: int = self.starts[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers; no name may be there twice."""
        pairs = [(name.decode(), value.decode()) for name, value in self.starts[0]["headers"]]
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def problem(self) -> dict[str, Any]:
        """The problem details of the answer."""
        problem: dict[str, Any] = json.loads(self.body)
        return problem


async def ask(app: ASGIApp, scope: Scope | None = None) -> Peer:
    """What an app answers to one request, a GET of / unless another is given."""
    peer = Peer()
    await app(scope or http(), peer.receive, peer.send)
    return peer


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that answers every request, and accepts and closes every WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept", "subprotocol": "chat", "headers": [(b"x-own", b"1")]})
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"ok"})


def limited(app: ASGIApp, quota: Any = "10/minute", **options: Any) -> RateLimitMiddleware:
    """The app behind a limit, on a clock that stands still."""
    return RateLimitMiddleware(app, quota, store=MemoryStore(clock=SteppedClock()), **options)


def starlette(*routes: Route | Mount, **options: Any) -> Starlette:
    """An app with the middleware, and nothing else, around its routes."""
    return Starlette(routes=routes, middleware=[Middleware(limited)], **options)


def sends(*messages: Message) -> ASGIApp:
    """An app that sends these messages."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


async def crash(app: ASGIApp, scope: Scope, error: type[Exception] = ZeroDivisionError) -> Peer:
    """What an app sends before it breaks with this error."""
    peer = Peer()
    with pytest.raises(error):
        await app(scope, peer.receive, peer.send)
    return peer


async def failure_at_start(app: ASGIApp) -> str:
    """What a server receives as the reason why an app does not start."""
    peer = Peer([{"type": "lifespan.startup"}])
    with pytest.raises(ConfigurationError):
        await app({"type": "lifespan"}, peer.receive, peer.send)
    (message,) = peer.sent
    assert message["type"] == "lifespan.startup.failed"
    return str(message["message"])
