"""What is received of a request while it waits: kept, and handed on to the app in order, as it came."""

from __future__ import annotations

from collections import deque
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope

MOST_BYTES: Final = 16_384
"""Bytes of a body that are read while a request waits. Then the flow control of the server holds the rest up."""

MOST_MESSAGES: Final = 64
"""As many messages at the most, because each takes more memory than its bytes."""

_GONE = frozenset({"http.disconnect", "websocket.disconnect"})


class Receiving:
    """The ``receive`` of a request that may wait: first it returns what was read while the request waited."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._read: deque[Message] = deque()
        self._bytes_left = MOST_BYTES
        self.is_gone = False
        """Whether the client has gone while the request waited."""
        if any(name == b"expect" for name, _ in scope.get("headers") or ()):
            self._bytes_left = 0  # to read is to tell the client to send its body: that is up to the app

    async def __call__(self) -> Message:
        """The next message of the request."""
        return self._read.popleft() if self._read else await self._receive()

    async def until_gone(self) -> None:
        """Read until the client has gone, or no more is to be kept."""
        while self._bytes_left > 0 and len(self._read) < MOST_MESSAGES and not self.is_gone:
            message = await self._receive()
            self._read.append(message)
            self._bytes_left -= len(message.get("body") or b"")
            self.is_gone = message["type"] in _GONE


def receiving_of(connection: HTTPConnection) -> Receiving:
    """The ``Receiving`` of a request or WebSocket of Starlette, which from now on receives through it.

    A dependency shares its connection with the endpoint, and there is no public way to put a message back.
    """
    receiving = Receiving(connection.scope, connection._receive)  # type: ignore[attr-defined]
    connection._receive = receiving  # type: ignore[attr-defined]
    return receiving
