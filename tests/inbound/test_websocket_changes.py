"""Sockets that are open while the limits of their messages change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, Overrides, RateLimitMiddleware, Rule
from tests.support.asgi import websocket
from tests.support.overriding import rewrite, until

pytestmark = pytest.mark.anyio

FILE = '[[rules]]\nname = "chat"\npath = "/{{path:path}}"\nexempt = true\n{}\n'


class Chat:
    """An open socket, whose app gets messages one by one."""

    def __init__(self, *rules: Rule, **options: Any) -> None:
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.got: list[Message] = []
        self.sent: list[Message] = []
        self.middleware = RateLimitMiddleware(self._app, rules=rules, **options)

    async def _app(self, scope: Scope, receive: Receive, _: Send) -> None:
        scope["path"], scope["root_path"] = "/elsewhere", "/changed"  # as a framework may do
        while not self.got or self.got[-1]["type"] != "websocket.disconnect":
            self.got.append(await receive())

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @asynccontextmanager
    async def open(self, **more: Any) -> AsyncIterator[None]:
        """The socket is open meanwhile."""
        connection = asyncio.create_task(self.middleware(websocket(**more), self._incoming.get, self._send))
        yield
        connection.cancel()
        await asyncio.wait((connection,))

    async def passes(self, count: int = 1) -> bool:
        """Whether so many messages pass; if one does not, the socket is closed."""
        for _ in range(count):
            before = len(self.got)
            self._incoming.put_nowait({"type": "websocket.receive", "text": "hello"})
            await until(lambda before=before: len(self.got) > before)  # type: ignore[misc]
        return not self.sent


async def test_a_file_applies_to_open_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota that changes, one that is new, and one that is gone; what was used stays used."""
    monkeypatch.setattr("asgi_ratelimit.inbound.config.EVERY", 0.02)
    monkeypatch.setattr("asgi_ratelimit.inbound.config.SETTLED_AFTER", 0.01)
    path = tmp_path / "limits.toml"

    async def write(messages: str) -> None:
        before = chat.middleware.rule_table
        rewrite(path, FILE.format(messages))
        await until(lambda: chat.middleware.rule_table is not before)

    path.write_text(FILE.format(""))
    chat = Chat(config=path, store=MemoryStore())
    async with chat.open(path="/a"):
        assert await chat.passes(5)
        await write('messages = "3/hour"')
        assert await chat.passes(3)
        await write("")
        assert await chat.passes(5)
        await write('messages = "4/hour"')
        assert await chat.passes()
        assert not await chat.passes()


async def test_keys_stay_as_at_the_handshake() -> None:
    """A function is not asked again for a rule that goes on; one that comes later is asked once."""
    store, asked = MemoryStore(), []

    def key_of(name: str) -> Callable[[Any], str]:
        return lambda connection: asked.append((name, connection.url.path)) or name  # type: ignore[func-returns-value]

    overrides = Overrides(store)
    rules = [Rule("/", "9/hour", messages="9/hour", name=name, key=key_of(name)) for name in ("a", "b")]
    await overrides.set("b", "off")
    chat = Chat(*rules, store=store)
    async with chat.open():
        assert await chat.passes(2)
        assert asked == [("a", "/")] * 2  # for the handshake, and for messages
        for _ in range(2):
            await overrides.unset("b")
            assert await chat.passes(1)
            await overrides.set("b", "off")
            assert await chat.passes(1)
    assert asked == [("a", "/")] * 2 + [("b", "/")]
