"""Apps that cancel ``receive`` under a limit of messages: no message is lost, and none is charged twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import Charge, FixedWindow, MemoryStore, RateLimitMiddleware, Rule, Take
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import websocket
from tests.support.store_elsewhere import StoreElsewhere

PER_DAY = FixedWindow(1000, 86_400, name="per-day")


@dataclass
class Line:
    """One peer, its messages with the times at which they come, and an app that receives them as ``reads`` says.

    Its store is of this process, or elsewhere and needs so many seconds for each call.
    """

    seconds: float
    reads: Callable[[Line, Receive, Send], Any]
    messages: Any = "1/s burst 1"
    sends: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    got: list[tuple[Any, float]] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    used: float = 0.0

    def __post_init__(self) -> None:
        self.clock = SteppedClock()
        self._start = self.clock.now
        self._memory = MemoryStore(clock=self.clock)
        self.store = StoreElsewhere(self._memory, self.seconds) if self.seconds else self._memory
        rule = Rule("/", None, messages=self.messages, name="chat")
        self.app = RateLimitMiddleware(self._app, rules=[rule], store=self.store)

    async def _app(self, _: Scope, receive: Receive, send: Send) -> None:
        await self.reads(self, receive, send)

    @property
    def now(self) -> float:
        """The seconds since the start."""
        return round(self.clock.now - self._start, 3)

    def note(self, message: Message) -> None:
        """The app has got a message."""
        self.got.append((message.get("text") or message["type"], self.now))

    def run(self) -> Line:
        """One connection, and what is charged after it."""
        self.clock.run(self.connection())
        return self

    async def connection(self) -> None:
        """Connect, send all messages, and disconnect half a minute later."""
        queue: asyncio.Queue[Message] = asyncio.Queue()
        sending = asyncio.create_task(self._sends(queue))
        await self.app(websocket(), queue.get, self._send)
        sending.cancel()
        self.used = await self.charged()

    async def charged(self) -> float:
        """What the messages were charged so far."""
        charge = Charge(PER_DAY, "192.0.2.1", name="chat messages")
        return PER_DAY.limit - (await self._memory.peek(Take((charge,)))).remaining

    async def _sends(self, queue: asyncio.Queue[Message]) -> None:
        for number, at in enumerate(sorted(self.sends)):
            await asyncio.sleep(at - self.now)
            queue.put_nowait({"type": "websocket.receive", "text": str(number)})
        await asyncio.sleep(30.0)
        queue.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_what_is_booked_for_nobody_is_given_back(seconds: float) -> None:
    """Where an app ends that has not got its message, others of the key need not wait for that."""

    async def once(line: Line, receive: Receive, _: Send) -> None:
        with suppress(TimeoutError):
            while True:
                line.note(await asyncio.wait_for(receive(), 0.35))

    line = Line(seconds, once)

    async def one_after_another() -> None:
        for _ in range(8):
            await line.connection()

    line.clock.run(one_after_another())
    assert [(text, int(at)) for text, at in line.got] == [("0", 0), ("0", 1), ("0", 2), ("0", 3)]
    assert line.sent == []


@given(
    st.sampled_from([0.0, 0.1]),
    st.lists(st.integers(0, 30).map(lambda tenths: tenths / 10), max_size=6),
    st.lists(st.sampled_from([0.0, 0.001, 0.05, 0.1, 0.15, 0.5, 1.0, 1.5]), max_size=30),
    st.booleans(),
)
def test_no_message_is_lost_or_reordered(
    seconds: float, sends: list[float], timeouts: list[float], by_wait: bool
) -> None:
    """Whatever the app cancels: it gets all, in their order, no faster than the quota, and each is charged once."""

    async def reads(line: Line, receive: Receive, _: Send) -> None:
        for timeout in timeouts:
            receiving = asyncio.create_task(receive())
            await asyncio.wait({receiving}, timeout=timeout)
            if not receiving.done():
                receiving.cancel()
                if by_wait:
                    await asyncio.wait({receiving})
            if receiving.done() and not receiving.cancelled():
                line.note(receiving.result())
        while not line.got or line.got[-1][0] != "websocket.disconnect":
            line.note(await receive())

    line = Line(seconds, reads, (FixedWindow(1, 1, name="per-second"), PER_DAY), sends).run()
    assert [text for text, _ in line.got] == [*map(str, range(len(sends))), "websocket.disconnect"]
    assert line.used == len(sends)
    if not seconds:  # a store elsewhere decides by its own time
        assert len({int(at) for _, at in line.got[:-1]}) == len(sends)
