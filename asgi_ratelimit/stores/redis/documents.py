"""Documents in Redis: one string key for each, and one hash for all parts of a name."""

from __future__ import annotations

import asyncio
import math
from types import NoneType
from typing import Any

from ...buckets import escaped
from ...errors import StoreUnavailable
from ..event_loops import ByLoop
from .clients import Commands, Server

LEAST_TIMEOUT = 1.0
"""The least seconds in which Redis has to answer: nobody is kept from work meanwhile."""

REPLACE = """
local current = redis.call('GET', KEYS[1])
if (current and '=' .. current or '') ~= ARGV[1] then return false end
return redis.call('SET', KEYS[1], ARGV[2])
"""
"""ARGV: the old content behind "=", or nothing if there is none, and the new one. Replies nothing if it was another."""

WRITE_PART = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
"""ARGV: the part, its content, and the milliseconds for which all parts live from now on."""

TIME = "local time = redis.call('TIME') return time[1] * 1000000 + time[2]"
"""Replies the time in microseconds since the Unix epoch."""


class RedisDocuments:
    """The documents of one store; each event loop has a connection of its own for them. ``prefix`` is escaped."""

    def __init__(self, server: Server, prefix: str, timeout: float) -> None:
        self._server = server
        self._prefix = prefix
        self._timeout = max(timeout, LEAST_TIMEOUT)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin without connections, in a forked child: those are its parent's."""
        self.by_loop: ByLoop[Commands] = ByLoop()

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        content: bytes | None = await self._call((bytes, NoneType), "GET", self._key(name))
        return content

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        options = () if seconds is None else ("PX", math.ceil(seconds * 1000))
        await self._call(object, "SET", self._key(name), content, *options)

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        before = b"" if old is None else b"=" + old
        return await self._call((bytes, NoneType), "EVAL", REPLACE, 1, self._key(name), before, new) is not None

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        parts = await self._call(dict, "HGETALL", self._key(name))
        return {part.decode(errors="replace"): content for part, content in parts.items()}

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        values = part.encode(), content, math.ceil(seconds * 1000)
        await self._call(object, "EVAL", WRITE_PART, 1, self._key(name), *values)

    async def delete_key(self, key: str) -> None:
        """Delete a key of Redis, of a document or of anything else."""
        await self._call(int, "DEL", key)

    async def now_us(self) -> float:
        """The time of the server, of one node of a cluster, in microseconds since the Unix epoch."""
        return float(await self._call(int, "EVAL", TIME, 1, self._key("time")))

    async def aclose(self) -> None:
        """Close the client of the running event loop after its answers; the next command opens another one."""
        commands = self.by_loop.pop(asyncio.get_running_loop(), None)
        if commands is not None:
            await commands.aclose()

    def _key(self, name: str) -> str:
        return f"{self._prefix}:documents:{escaped(name)}"

    def _commands(self) -> Commands:
        return self.by_loop.of_running(lambda: Commands(self._server, self._timeout))

    async def _call(self, kind: type | tuple[type, ...], *command: str | bytes | int) -> Any:
        """The answer to one command. Raises ``StoreError``, also if it is not of this kind."""
        commands = self._commands()
        answer = await commands(*command)
        if not isinstance(answer, kind):
            commands.connection.drop()
            raise StoreUnavailable(f"Redis answered {answer!r:.100}, which makes no sense")
        return answer
