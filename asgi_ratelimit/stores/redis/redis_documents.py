"""Documents in Redis: one string key for each, and one hash for all parts of a name, over a connection of their own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from ...buckets import escaped
from ...errors import StoreUnavailable
from ..documents import checked_content, checked_seconds
from ..event_loops import drop_closed, running_loop
from .cluster.commands import ClusterCommands
from .connection.script_calls import ScriptCaller
from .connection.server_addresses import ClusterAddresses, SingleAddress

T = TypeVar("T")

LEAST_TIMEOUT = 1.0
"""The least seconds in which Redis has to answer: nobody is kept from work meanwhile."""

REPLACE = """
local current = redis.call('GET', KEYS[1])
if (current and '=' .. current or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[3] == '' then
  redis.call('SET', KEYS[1], string.sub(ARGV[2], 2))
else
  redis.call('SET', KEYS[1], string.sub(ARGV[2], 2), 'PX', ARGV[3])
end
return 1
"""
"""ARGV: the old and the new content, each behind "=", or nothing if there is none; milliseconds to live, or nothing.
Replies whether the content was the old one."""

_LIVING = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local living, dead, all = {}, {}, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  local until_ms, content = string.match(all[at + 1], '^(%d+) (.*)$')
  if until_ms == '0' or tonumber(until_ms) > now_ms then
    living[#living + 1] = all[at]
    living[#living + 1] = content
  else
    dead[#dead + 1] = all[at]
  end
end
"""

READ_PARTS = f"{_LIVING} return living"
"""Replies the names and contents of the parts that have not expired."""

WRITE_PART = f"""
local left_ms = redis.call('PTTL', KEYS[1])
local until_ms = '0'
if ARGV[3] ~= '' then
  local time = redis.call('TIME')
  until_ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3])
end
local is_new = redis.call('HSET', KEYS[1], ARGV[1], until_ms .. ' ' .. ARGV[2])
if ARGV[3] == '' then
  redis.call('PERSIST', KEYS[1])
elseif left_ms ~= -1 and left_ms < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
if is_new == 1 then
  {_LIVING}
  for _, part in ipairs(dead) do redis.call('HDEL', KEYS[1], part) end
end
"""
"""ARGV: the part, its content, its milliseconds to live, or nothing. A new part replaces those that have expired."""


class _Commands(Protocol):
    """Sends commands with one key for one event loop."""

    async def command(self, *command: str | bytes | int) -> Any: ...

    async def aclose(self) -> None: ...


_Opened: TypeAlias = tuple[asyncio.Lock, _Commands]


class RedisDocuments:
    """The documents of one store. Each event loop has a connection of its own, which carries one command at a time.

    ``prefix`` is the escaped prefix of the store, and ``timeout`` that of its takes, in seconds.
    """

    def __init__(self, addresses: SingleAddress | ClusterAddresses, prefix: bytes, timeout: float) -> None:
        self._addresses = addresses
        self._prefix = prefix + b":documents:"
        self._timeout = max(timeout, LEAST_TIMEOUT)
        self._commands: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()
        self._calls: set[asyncio.Task[Any]] = set()

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        return await self._call(_optional, "GET", self._key(name))

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        time_to_live = _milliseconds(seconds)
        options = ("PX", time_to_live) if time_to_live else ()
        await self._call(_nothing, "SET", self._key(name), _encoded(checked_content(content)), *options)

    async def replace(self, name: str, old: bytes | None, new: bytes | None, *, seconds: float | None = None) -> bool:
        """Replace a document if it is still ``old``, and return whether it was; ``None`` stands for no document."""
        contents = [b"" if each is None else b"=" + _encoded(checked_content(each)) for each in (old, new)]
        return await self._call(_flag, "EVAL", REPLACE, 1, self._key(name), *contents, _milliseconds(seconds))

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        return await self._call(_parts, "EVAL", READ_PARTS, 1, self._key(name))

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace one part, whatever it was; the others stay."""
        value = _encoded(part.encode()), _encoded(checked_content(content)), _milliseconds(seconds)
        await self._call(_nothing, "EVAL", WRITE_PART, 1, self._key(name), *value)

    async def now_us(self) -> float:
        """The time of the server, of any node of a cluster, in microseconds since the Unix epoch."""
        return await self._call(_time, "TIME")

    async def aclose(self) -> None:
        """Close the connection of the running event loop; the next command opens another one."""
        opened = self._commands.pop(running_loop(*_NEEDS_ASYNCIO), None)
        if opened is not None:
            lock, commands = opened
            async with lock:
                await commands.aclose()

    def _key(self, name: str) -> bytes:
        return self._prefix + escaped(name).encode()

    async def _call(self, read: Callable[[Any], T], *command: str | bytes | int) -> T:
        """The result of ``read`` on the answer to one command. Raises ``StoreError``."""
        loop = running_loop(*_NEEDS_ASYNCIO)
        opened = self._commands.get(loop)
        if opened is None:
            drop_closed(self._commands)
            opened = self._commands[loop] = asyncio.Lock(), self._open()
        calling = loop.create_task(self._call_in_turn(opened, read, command))
        self._calls.add(calling)
        calling.add_done_callback(self._called)
        return await asyncio.shield(calling)  # a caller that is cancelled leaves no half-open connection behind

    async def _call_in_turn(
        self, opened: _Opened, read: Callable[[Any], T], command: tuple[str | bytes | int, ...]
    ) -> T:
        lock, commands = opened
        async with lock:
            try:
                answer = await commands.command(*command)
                try:
                    return read(answer)
                except (AttributeError, TypeError, ValueError) as error:
                    await commands.aclose()  # the answers to other commands may follow
                    raise StoreUnavailable(f"Redis answered {answer!r:.100}, which makes no sense") from error
            finally:
                if self._commands.get(asyncio.get_running_loop()) is not opened:  # it was closed before its turn
                    await commands.aclose()

    def _called(self, calling: asyncio.Task[Any]) -> None:
        self._calls.discard(calling)
        if not calling.cancelled():
            calling.exception()  # a caller that is gone does not get it

    def _open(self) -> _Commands:
        if isinstance(self._addresses, SingleAddress):
            return ScriptCaller(self._addresses.pool(), self._timeout)
        return ClusterCommands(self._addresses, self._timeout)


_NEEDS_ASYNCIO = "a document in Redis", "read it in a thread with an event loop of its own"


def _optional(answer: Any) -> bytes | None:
    return None if answer is None else _decoded(answer)


def _nothing(answer: Any) -> None:
    """Ignore an answer."""


def _time(answer: Any) -> float:
    seconds, microseconds = map(int, answer)
    return seconds * 1e6 + microseconds


def _flag(answer: Any) -> bool:
    return bool((0, 1).index(answer))


def _parts(answer: Any) -> dict[str, bytes]:
    flat = [_decoded(each) for each in answer]
    return {part.decode(): content for part, content in zip(flat[::2], flat[1::2], strict=True)}


def _milliseconds(seconds: float | None) -> bytes:
    """A time to live as an argument, at least a millisecond; empty for no end."""
    seconds = checked_seconds(seconds)
    return b"" if seconds == math.inf else b"%d" % math.ceil(seconds * 1000)


def _encoded(content: bytes) -> bytes:
    """A content without line breaks: the bounds of replies take the text after a line break for a header."""
    return content.replace(b"%", b"%25").replace(b"\n", b"%0A")


def _decoded(content: bytes) -> bytes:
    return content.replace(b"%0A", b"\n").replace(b"%25", b"%")
