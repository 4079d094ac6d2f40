"""Documents in Redis: one string key for each, and one hash for all parts of a name."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar

from ...buckets import escaped
from ...errors import StoreUnavailable
from ..event_loops import drop_closed, running_loop
from .clients import Connection
from .errors import store_error_of
from .node import Context

T = TypeVar("T")

LEAST_TIMEOUT = 1.0
"""The least seconds in which Redis has to answer: nobody is kept from work meanwhile."""

REPLACE = """
local current = redis.call('GET', KEYS[1])
if (current and '=' .. current or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
"""ARGV: the old content behind "=", or nothing if there is none, and the new one. Replies whether it was replaced."""

WRITE_PART = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
"""ARGV: the part, its content, and the milliseconds for which all parts live from now on."""


class RedisDocuments:
    """The documents of one store; each event loop has a connection of its own for them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._prefix = f"{context.prefix}:documents:"
        self._timeout = max(context.timeout, LEAST_TIMEOUT)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin without connections, in a forked child: those are its parent's."""
        self.connections: dict[asyncio.AbstractEventLoop, Connection] = {}

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        return await self._call(_optional, "GET", self._key(name))

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        options = () if seconds is None else ("PX", _milliseconds(seconds))
        await self._call(_nothing, "SET", self._key(name), content, *options)

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        before = b"" if old is None else b"=" + old
        return await self._call(_flag, "EVAL", REPLACE, 1, self._key(name), before, new)

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        return await self._call(_parts, "HGETALL", self._key(name))

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        value = part.encode(), content, _milliseconds(seconds)
        await self._call(_nothing, "EVAL", WRITE_PART, 1, self._key(name), *value)

    async def now_us(self) -> float:
        """The time of the server, of any node of a cluster, in microseconds since the Unix epoch."""
        return await self._call(_time, "TIME")

    async def aclose(self) -> None:
        """Close the client of the running event loop after its answers; the next command opens another one."""
        connection = self.connections.pop(running_loop(*_NEEDS_ASYNCIO), None)
        if connection is not None:
            await connection.aclose()

    def _key(self, name: str) -> str:
        return self._prefix + escaped(name)

    async def _call(self, read: Callable[[Any], T], *command: str | bytes | int) -> T:
        """The result of ``read`` on the answer to one command. Raises ``StoreError``.

        A call that is not answered in time, or whose caller is cancelled, goes on without anybody who waits for it.
        """
        loop = running_loop(*_NEEDS_ASYNCIO)
        connection = self.connections.get(loop)
        if connection is None:
            drop_closed(self.connections)
            connection = self.connections[loop] = Connection(self._context.server, self._context.lookup)
        task = connection.keep(self._send(connection, command))
        done, _ = await asyncio.wait([task], timeout=self._timeout)
        try:
            if done:
                return read(task.result())
            task.cancel()
            raise TimeoutError
        except Exception as error:
            connection.drop()
            if done and task.exception() is None:
                wrong = StoreUnavailable(f"Redis answered {task.result()!r:.100}, which makes no sense")
                raise wrong from error
            raise store_error_of(error, self._timeout, untried=self._context.untried) from error

    async def _send(self, connection: Connection, command: tuple[str | bytes | int, ...]) -> Any:
        async with connection.turn:
            client = connection.client or await connection.open()
            options = {}
            if self._context.server.is_cluster and command[0] == "TIME":
                options["target_nodes"] = client.get_default_node()
            return await client.execute_command(*command, **options)


_NEEDS_ASYNCIO = "a document in Redis", "read it in a thread with an event loop of its own"


def _nothing(answer: Any) -> None:
    """No answer is needed."""


def _optional(answer: Any) -> bytes | None:
    if answer is None or isinstance(answer, bytes):
        return answer
    raise TypeError("neither a text nor nothing")


def _time(answer: Any) -> float:
    seconds, microseconds = answer
    return float(int(seconds) * 1_000_000 + int(microseconds))


def _flag(answer: Any) -> bool:
    return bool((0, 1).index(answer))


def _parts(answer: Any) -> dict[str, bytes]:
    return {part.decode(): content for part, content in answer.items()}


def _milliseconds(seconds: float) -> int:
    """A time to live as an argument, at least a millisecond."""
    return math.ceil(seconds * 1000)
