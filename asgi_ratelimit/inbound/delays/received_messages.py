"""Messages that are received while a request waits, and are kept for the app in order and unchanged.

A pending ``receive`` is never cancelled while the request runs: it may belong to an outer middleware, which may already
hold a message and would lose it. So a task reads on, and the app waits for what the task receives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope

MOST_BYTES: Final = 16_384
"""The most bytes of a body that are read while a request waits. After that, the server's flow control holds the rest
back."""

MOST_MESSAGES: Final = 64
"""The most messages that are read, because each takes more memory than its bytes."""

_GONE = frozenset({"http.disconnect", "websocket.disconnect"})


class Receiving:
    """The ``receive`` of a request that may wait: first it returns what was read while the request waited."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._read: deque[Message] = deque()
        self._bytes_left = MOST_BYTES
        self._is_watching = False
        self._reading: asyncio.Task[None] | None = None
        self.is_gone = False
        """Whether the client has gone while the request waited."""
        self.waited = 0.0
        """How many seconds the request has waited for slots."""
        if any(name == b"expect" for name, _ in scope.get("headers") or ()):
            self._bytes_left = 0  # reading would make the client send its body: that is up to the app

    async def __call__(self) -> Message:
        """The next message of the request."""
        if self._reading is not None and not self._read:
            await self._end_of(self._reading)
        return self._read.popleft() if self._read else await self._receive()

    def watch(self) -> asyncio.Task[None]:
        """A task that reads until the client has gone, or no more may be kept. Do not cancel it.

        What it reads after nobody receives any longer is dropped when the task of the request ends. So is an error.
        """
        self._is_watching = True
        if self._reading is None or (self._reading.done() and not _error(self._reading)):
            self._reading = asyncio.ensure_future(self._read_on())
            _end_with(asyncio.current_task(), self._reading)
        return self._reading

    def stop_watching(self) -> None:
        """Read no further than the message that is awaited now."""
        self._is_watching = False

    async def _read_on(self) -> None:
        while self._is_watching and self._bytes_left > 0 and len(self._read) < MOST_MESSAGES and not self.is_gone:
            message = await self._receive()
            self._read.append(message)
            self._bytes_left -= len(message.get("body") or b"")
            self.is_gone = message["type"] in _GONE

    async def _end_of(self, reading: asyncio.Task[None]) -> None:
        """Wait until no other task receives; raise the error with which that task ended, once."""
        if not reading.done():
            await asyncio.wait((reading,))
        error = _error(reading)
        if error is not None and not self._read and self._reading is reading:
            self._reading = None
            raise error


def _error(task: asyncio.Task[None]) -> BaseException | None:
    """The error with which a task has ended; the event loop then no longer reports it."""
    return None if task.cancelled() else task.exception()


def _end_with(request: asyncio.Task[object] | None, reading: asyncio.Task[None]) -> None:
    """Cancel the reading for a request when the task of the request ends, and keep its errors out of the log."""

    def cancel(_: object) -> None:
        reading.cancel()

    def forget(_: object) -> None:
        _error(reading)
        if request is not None:
            request.remove_done_callback(cancel)

    if request is not None:
        request.add_done_callback(cancel)
    reading.add_done_callback(forget)


def receiving_of(connection: HTTPConnection) -> Receiving:
    """The ``Receiving`` of a request or WebSocket of Starlette, which from now on receives through it.

    A dependency shares its connection with the endpoint, and there is no public way to put a message back.
    """
    receiving = Receiving(connection.scope, connection._receive)  # type: ignore[attr-defined]
    connection._receive = receiving  # type: ignore[attr-defined]
    return receiving
