"""An open connection to Redis: packed commands go in, parsed answers come out, with no task and no stream between.

redis-py connects and authenticates; then ``Connection`` takes the transport over. If redis-py does not offer the
transport, ``RedisPyConnection`` sends and reads through redis-py, at the cost of a task for each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, cast

from hiredis import PushNotification, Reader
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from .reply_bounds import HEADER, HUGE, HUGE_AT_START, MAX_BYTES, TOO_LARGE

Outcome: TypeAlias = "list[Any] | Exception"
"""The answers to the commands, among which an error of Redis is an answer too, or the reason why there are none."""

WRITER_ATTRIBUTE = "_writer"
"""The attribute of the stream writer in redis-py's connections, which have no public access to the transport."""

_INCOMPLETE: Final = object()
"""What the parser returns while an answer is not complete."""

_ERROR_CLASSES: dict[str, Callable[[str], Exception]] = {
    "ASK": AskError,
    "MOVED": MovedError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
}


class OpenConnection(Protocol):
    """A connection that is open, for one event loop, with one set of commands in flight at a time."""

    @property
    def is_clean(self) -> bool:
        """Whether it is open, has nothing in flight, and no bytes are left over."""
        ...

    def send(self, packed: bytes, count: int, done: Callable[[Outcome], None]) -> None:
        """Send ``count`` packed commands; call ``done`` once, with as many answers or with an error."""
        ...

    def abort(self, error: Exception) -> None:
        """End the call in flight with ``error``, and close: whatever arrives next cannot be attributed."""
        ...


async def open_connection(pool: ConnectionPool) -> tuple[AbstractConnection, OpenConnection]:
    """A connection from ``pool``, and the ``OpenConnection`` over it. Raises the errors of redis-py."""
    connection = cast("AbstractConnection", await pool.get_connection())  # type: ignore[no-untyped-call]
    writer = getattr(connection, WRITER_ATTRIBUTE, None)
    if isinstance(writer, asyncio.StreamWriter):
        return connection, Connection(writer.transport)
    return connection, RedisPyConnection(pool, connection)


class Connection(asyncio.Protocol):
    """An ``OpenConnection`` over a transport that redis-py has opened."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._reader = Reader(protocolError=InvalidResponse, replyError=_error_of, notEnoughData=_INCOMPLETE)
        self._lost = False
        self._expected = 0
        self._answers: list[Any] = []
        self._done: Callable[[Outcome], None] | None = None
        self._incomplete = 0
        self._tail = b""
        self._transport.set_protocol(self)

    @property
    def is_clean(self) -> bool:
        """Whether it is open, has nothing in flight, and no bytes are left over."""
        return not (self._lost or self._done or self._reader.has_data() or self._transport.is_closing())

    def send(self, packed: bytes, count: int, done: Callable[[Outcome], None]) -> None:
        """Send ``count`` packed commands; call ``done`` once, with as many answers or with an error."""
        self._expected, self._answers, self._done = count, [], done
        self._transport.write(packed)

    def abort(self, error: Exception) -> None:
        """End the call in flight with ``error``, and close: whatever arrives next cannot be attributed."""
        self._close()
        self._end(error)

    def data_received(self, data: bytes) -> None:
        """Parse the data from Redis. An answer to no command, or one that is too large, closes the connection."""
        scanned = self._tail + data if self._tail else data
        if HUGE_AT_START.match(scanned) or HUGE.search(scanned) or self._incomplete > MAX_BYTES:
            self.abort(InvalidResponse(TOO_LARGE))
            return
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not _INCOMPLETE:
                if not isinstance(answer, PushNotification):
                    self._answers.append(answer)
        except InvalidResponse as error:
            self.abort(error)
            return
        answers, expected, done = self._answers, self._expected, self._done
        if len(answers) > expected:
            self._close()
        if done is not None and len(answers) >= expected:
            self._done, self._expected, self._answers = None, 0, []
            self._incomplete, self._tail = 0, b""
            done(answers[:expected])
        else:
            self._incomplete += len(data)
            self._tail = scanned[-HEADER:]

    def connection_lost(self, error: Exception | None) -> None:
        """End the call in flight, because the other end has closed or the transport has failed."""
        self._lost = True
        self._end(RedisConnectionError(f"the connection was lost: {error or 'closed by the server'}"))

    def _close(self) -> None:
        self._lost = True
        self._transport.abort()

    def _end(self, error: Exception) -> None:
        done, self._done, self._expected, self._answers = self._done, None, 0, []
        if done is not None:
            done(error)


class RedisPyConnection:
    """An ``OpenConnection`` over redis-py's own methods to send commands and to read answers."""

    def __init__(self, pool: ConnectionPool, connection: AbstractConnection) -> None:
        self._pool = pool
        self._connection = connection
        self._lost = False
        self._task: asyncio.Task[None] | None = None
        self._done: Callable[[Outcome], None] | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is in flight; a connection that the server has closed is opened again by the next call."""
        return not (self._lost or self._done)

    def send(self, packed: bytes, count: int, done: Callable[[Outcome], None]) -> None:
        """Send ``count`` packed commands; call ``done`` once, with as many answers or with an error."""
        self._done = done
        self._task = asyncio.get_running_loop().create_task(self._call(packed, count))

    def abort(self, error: Exception) -> None:
        """End the call in flight with ``error``; the connection is not used again."""
        self._lost = True
        self._end(error)
        if self._task is not None:
            self._task.cancel()

    async def _call(self, packed: bytes, count: int) -> None:
        outcome: Outcome = RedisConnectionError("the event loop has ended")
        try:
            await self._pool.ensure_connection(self._connection)
            await self._connection.send_packed_command(packed, check_health=False)
            outcome = [await self._read() for _ in range(count)]
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
            self._lost, outcome = True, error
        finally:
            self._end(outcome)

    async def _read(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def _end(self, outcome: Outcome) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


def _error_of(message: str) -> Exception:
    """The exception for an error that Redis answers."""
    code, _, text = message.partition(" ")
    with suppress(ValueError):  # a redirection that cannot be read
        if code in _ERROR_CLASSES:
            return _ERROR_CLASSES[code](text)
    return cast("Exception", ResponseError(message))
