"""A pipe: commands into a connection to Redis, answers out of it, with no task and no stream between.

It takes over from redis-py once that has connected, and knows nothing of what the commands mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

from hiredis import PushNotification, Reader
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, AuthenticationError, InvalidResponse, MovedError, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

Outcome: TypeAlias = "list[Any] | Exception"
"""The answers to commands, errors that Redis answered among them, or why there are none."""

_MORE: Final = object()
"""What the parser says where an answer is not there in full."""

_KINDS: dict[str, Callable[[str], Exception]] = {
    "ASK": AskError,
    "MOVED": MovedError,
    "NOAUTH": AuthenticationError,
    "NOSCRIPT": NoScriptError,
}


class Pipe(asyncio.Protocol):
    """The two ends of a connection that redis-py has opened, for one event loop and one exchange at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        writer = cast("asyncio.StreamWriter", connection._writer)  # redis-py offers no other way to the transport
        self._transport = cast("asyncio.Transport", writer.transport)
        self._reader = Reader(protocolError=InvalidResponse, replyError=_error_of, notEnoughData=_MORE)
        self._lost = False
        self._due = 0
        self._answers: list[Any] = []
        self._tell: Callable[[Outcome], None] | None = None
        self._transport.set_protocol(self)

    @property
    def is_clean(self) -> bool:
        """Whether it is open, and nothing is under way on it or left over."""
        return not (self._lost or self._tell or self._reader.has_data() or self._transport.is_closing())

    def exchange(self, packed: bytes, due: int, tell: Callable[[Outcome], None]) -> None:
        """Send packed commands, and ``tell`` once what comes of them: so many answers, or an error."""
        self._due, self._answers, self._tell = due, [], tell
        self._transport.write(packed)

    def give_up(self, error: Exception) -> None:
        """Tell ``error`` of what is under way, and close: nobody knows what would come over it next."""
        self._lost = True
        self._transport.abort()
        self._end(error)

    def data_received(self, data: bytes) -> None:
        """What comes from Redis: nothing, while nothing is under way."""
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not _MORE:
                if not isinstance(answer, PushNotification):
                    self._answers.append(answer)
        except InvalidResponse as error:
            self.give_up(error)
            return
        if len(self._answers) > self._due:  # the first of them are what was asked for; then it is out of step
            self._lost = True
            self._transport.abort()
        if self._tell is not None and len(self._answers) >= self._due:
            self._end(self._answers[: self._due])

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more will come."""
        self._lost = True
        self._end(RedisConnectionError(f"the connection was lost: {error or 'closed by the server'}"))

    def _end(self, outcome: Outcome) -> None:
        tell, self._tell, self._due, self._answers = self._tell, None, 0, []
        if tell is not None:
            tell(outcome)


def _error_of(message: str) -> Exception:
    """The exception for an error that Redis answers."""
    kind, _, rest = message.partition(" ")
    return _KINDS[kind](rest) if kind in _KINDS else cast("Exception", ResponseError(message))
