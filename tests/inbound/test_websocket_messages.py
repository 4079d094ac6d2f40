"""Messages over a WebSocket: slowed down to what their quota allows, and closed where that is not enough."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi_ratelimit import ConfigurationError, MemoryStore, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, websocket
from tests.support.redis_server import RedisServer

TEXT = {"type": "websocket.receive", "text": "hello"}
CLOSE = {"type": "websocket.close", "code": 1013, "reason": "too many messages"}
GONE = {"type": "websocket.disconnect", "code": 1013, "reason": "too many messages"}


class Sockets:
    """Sockets that all send as fast as they may, to an app that reads so many messages and notes when they come."""

    def __init__(self, *rules: Rule) -> None:
        self.clock = SteppedClock()
        self._start = self.clock.now
        self.came: list[float] = []
        self.sent: list[Message] = []
        self.got: list[Message] = []
        self.seen: list[Event] = []
        store = MemoryStore(clock=self.clock)
        self._app = RateLimitMiddleware(self._reads, rules=rules, store=store, hooks=[self.seen.append])
        self._count = 0

    def run(self, count: int, sockets: int = 1, names: Sequence[str] = ()) -> list[float]:
        """When the messages came to the app, in seconds from the start."""
        self._count = count
        scopes = [websocket(headers=[(b"x", name.encode())]) for name in names or [""] * sockets]

        async def all_at_once() -> None:
            await asyncio.gather(*[self._app(scope, self._receive, self._send) for scope in scopes])

        self.clock.run(all_at_once())
        return self.came

    async def _receive(self) -> Message:
        return TEXT

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def _reads(self, _: Scope, receive: Receive, __: Send) -> None:
        for _ in range(self._count):
            message = await receive()
            self.got.append(message)
            if message["type"] != "websocket.receive":
                return
            self.came.append(round(self.clock.now - self._start, 6))


def serve(app: ASGIApp, *incoming: Message, send: Send | None = None, **options: Any) -> Peer:
    """What an app sends that may receive one of these messages an hour."""
    clock, peer = SteppedClock(), Peer(incoming or [TEXT] * 3)
    rules = [Rule("/", None, messages="1/hour")]
    limited = RateLimitMiddleware(app, rules=rules, store=MemoryStore(clock=clock), **options)
    clock.run(limited(websocket(), peer.receive, send or peer.send))
    return peer


def test_messages_come_no_faster_than_their_quota() -> None:
    """A burst at once, and then one after the other."""
    assert Sockets(Rule("/", None, messages="2/s burst 3")).run(7) == [0, 0, 0, 0.5, 1.0, 1.5, 2.0]


def test_the_sockets_of_a_key_share_the_quota() -> None:
    """More sockets are not faster."""
    came = Sockets(Rule("/", None, messages="2/s burst 1")).run(3, sockets=3)
    assert sorted(came) == [0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_hooks_see_what_is_closed() -> None:
    """An event for each socket that is closed, beside that of its handshake; messages that come make none."""
    sockets = Sockets(Rule("/", "9/s", messages="1/s burst 1", name="chat"))
    sockets.run(1, sockets=8)
    assert sorted(event.rule for event in sockets.seen) == ["chat"] * 8 + ["chat messages"] * 2
    closed = next(event for event in sockets.seen if event.rule == "chat messages")
    assert (closed.result, closed.quota.name, closed.path, closed.waited) == ("refused", "per-second", "/", None)


def test_each_key_has_its_own() -> None:
    """By the key of the rule, which is asked for once."""
    keys: Any = map(str, itertools.count()).__next__
    options: Any = {"messages": "1/s burst 1", "key": lambda connection: keys()}
    sockets = Sockets(Rule("/", "9/s", **options), Rule("/{any:path}", "9/s", name="any", **options))
    assert sockets.run(2, sockets=3) == [0, 0, 0, 1, 1, 1]
    assert keys() == "3"


def test_who_waits_for_its_own_messages_takes_nothing_of_others() -> None:
    """Of a quota that all share: nothing is booked there before a message can go."""
    own = Rule("/", "1000/s", messages="1/s burst 1", key=lambda connection: connection.headers.get("x"), name="own")
    sockets = Sockets(own, Rule("/", "1000/s", messages="100/s burst 2", key=lambda connection: "all", name="all"))
    names = [*["ann"] * 6, *[f"other {number}" for number in range(20)]]
    assert sorted(sockets.run(1, names=names))[:22] == [*[0.0] * 2, *[round(n / 100, 2) for n in range(1, 20)], 1.0]
    assert sockets.sent == []


def test_handshakes_are_charged_to_the_quota_of_the_rule() -> None:
    """Messages are charged to theirs: neither quota uses up the other."""
    sockets = Sockets(Rule("/", "2/minute", messages="1/s burst 4"))
    assert sockets.run(2, sockets=3) == [0, 0, 0, 0]
    assert [message["type"] for message in sockets.sent] == ["websocket.close"]
    assert sockets.sent[0]["code"] == 1008


def test_other_messages_are_not_counted() -> None:
    """Connecting and disconnecting cost nothing, and pass unchanged."""
    got, incoming = [], [{"type": "websocket.connect"}, TEXT, {"type": "websocket.disconnect", "code": 1001}]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got.extend([await receive() for _ in range(3)])

    assert serve(app, *incoming).sent == []
    assert [id(message) for message in got] == [id(message) for message in incoming]


@pytest.mark.anyio
async def test_an_app_that_polls_gets_its_messages() -> None:
    """Even in scopes that are cancelled at once: what has come by then is there."""
    got: list[Message] = []

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while len(got) < 3:
            with anyio.move_on_after(0):
                got.append(await receive())
            await asyncio.sleep(0)

    incoming = asyncio.Queue[Message]()
    for message in ({"type": "websocket.connect"}, TEXT, TEXT):
        incoming.put_nowait(message)
    throttled = RateLimitMiddleware(app, rules=[Rule("/", None, messages="100/s")])
    await asyncio.wait_for(throttled(websocket(), incoming.get, Peer().send), 10)
    assert got[1:] == [TEXT, TEXT]


def test_nothing_leaves_after_the_close() -> None:
    """An app that sends to a closed socket gets the error of a peer that has disconnected."""
    received = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() is TEXT
        assert [await receive(), await receive()] == [GONE, GONE]
        with pytest.raises(OSError, match="1013"):
            await send({"type": "websocket.send", "text": "still there?"})
        received.append("all")

    assert serve(app).sent == [CLOSE]
    assert received == ["all"]


def test_what_comes_after_the_app_has_closed_takes_nothing() -> None:
    """Servers deliver what was queued, and Starlette's endpoints receive until the disconnect; closing takes time."""
    got, sent, seen = list[Message](), list[Message](), list[Event]()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        closing = asyncio.ensure_future(send({"type": "websocket.close", "code": 1000}))
        await asyncio.sleep(0.1)
        got.extend([await receive() for _ in range(2)])
        await closing

    async def slow_send(message: Message) -> None:
        await asyncio.sleep(1)
        sent.append(message)

    serve(app, send=slow_send, hooks=[seen.append])
    assert (got, [each["code"] for each in sent], seen) == ([TEXT, TEXT], [1000], [])


def test_a_client_that_has_gone_is_no_error_of_the_app() -> None:
    """The server raises an error when a socket is closed whose client has gone."""
    got = list[Message]()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        got.extend([await receive() for _ in range(2)])

    async def send(_: Message) -> None:
        raise OSError

    serve(app, send=send)
    assert got == [TEXT, GONE]


@pytest.mark.anyio
@pytest.mark.parametrize(("on_error", "closed"), [("local", None), ("allow", None), ("deny", "rate limit unavailable")])
async def test_an_outage_of_the_store(server: RedisServer, on_error: Any, closed: str | None) -> None:
    """A socket that nobody may use then is closed as a handshake is, and not for too many messages."""
    received, peer = [], Peer([TEXT] * 2)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        received.extend([await receive() for _ in range(2)])

    store = RedisStore(server.url, on_error=on_error, timeout=30)
    server.stop()
    rule = Rule("/", None, messages="5/hour")
    await RateLimitMiddleware(app, rules=[rule], store=store)(websocket(), peer.receive, peer.send)
    await store.aclose()
    if closed is None:
        assert (received, peer.sent) == ([TEXT, TEXT], [])
    else:
        assert peer.sent == [{**CLOSE, "reason": closed}]
        assert received == [{**GONE, "reason": closed}] * 2


@pytest.mark.parametrize("limits", [{"rules": [Rule("/", None, messages="20/s burst 1")]}, {"store": "redis://redis"}])
def test_messages_and_redis_need_asyncio(limits: dict[str, Any]) -> None:
    """Under trio, the app does not start."""
    client = TestClient(Starlette(middleware=[Middleware(RateLimitMiddleware, "5/s", **limits)]), backend="trio")
    with pytest.raises(ConfigurationError, match=r"RedisStore, .* needs asyncio.* under trio, leave them out"), client:
        raise AssertionError("it has started")
