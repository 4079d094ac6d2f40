"""What processes on one store share beside the buckets: documents, which are small values."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from types import NoneType
from typing import Any, cast

from ..buckets import escaped
from ..quotas import SECOND_US
from .base import lock

# The largest content of a document, or of a part of one, in bytes; who writes one keeps to it.
MAX_BYTES = 1024 * 1024


class MemoryDocuments:
    """Documents in this process. Thread-safe; ``now_us`` is the time in microseconds by which they expire."""

    def __init__(self, now_us: Callable[[], float]) -> None:
        self._now_us = now_us
        # By name, the contents of the parts, that of a document under an empty name, and when they expire.
        self._values: dict[str, tuple[dict[str, bytes], float]] = {}

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        return (await self.read_parts(name)).get("")

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        until_us = math.inf if seconds is None else self._now_us() + seconds * SECOND_US
        with lock:
            self._values[name] = {"": content}, until_us

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        with lock:
            is_old = self._living(name).get("") == old
            if is_old:
                self._values[name] = {"": new}, math.inf
            return is_old

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        with lock:
            return dict(self._living(name))

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        with lock:
            self._values[name] = {**self._living(name), part: content}, self._now_us() + seconds * SECOND_US

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _living(self, name: str) -> dict[str, bytes]:
        """What a name has; all that has expired is deleted, because nobody may ask for its name again."""
        now = self._now_us()
        for each in [each for each, (_, until_us) in self._values.items() if until_us <= now]:
            del self._values[each]
        return self._values.get(name, ({}, 0.0))[0]


# ARGV: the old content behind "=", or nothing if there is none, and the new one. Replies nothing if it was another.
REPLACE = """
local current = redis.call('GET', KEYS[1])
if (current and '=' .. current or '') ~= ARGV[1] then return false end
return redis.call('SET', KEYS[1], ARGV[2])
"""

# ARGV: the part, its content, and the milliseconds for which all parts live from now on.
WRITE_PART = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""


class RedisDocuments:
    """Documents in Redis: one string key for each, and one hash for all parts of a name.

    ``call`` is awaited with the words of a command, and the ``kind`` of its answer; it raises ``StoreError``. Its
    ``aclose`` closes the connection of the running event loop. ``prefix`` is that of the keys.
    """

    def __init__(self, prefix: str, call: Any) -> None:
        self._prefix = prefix
        self._call = call
        self.aclose: Callable[[], Coroutine[Any, Any, None]] = call.aclose

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        return cast("bytes | None", await self._call("GET", self._key(name), kind=(bytes, NoneType)))

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        options = () if seconds is None else ("PX", math.ceil(seconds * 1000))
        await self._call("SET", self._key(name), content, *options)

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        words = "EVAL", REPLACE, 1, self._key(name), b"" if old is None else b"=" + old, new
        return await self._call(*words, kind=(bytes, NoneType)) is not None

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        parts = await self._call("HGETALL", self._key(name), kind=dict)
        return {part.decode(errors="replace"): content for part, content in parts.items()}

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        await self._call("EVAL", WRITE_PART, 1, self._key(name), part.encode(), content, math.ceil(seconds * 1000))

    def _key(self, name: str) -> str:
        return f"{self._prefix}:documents:{escaped(name)}"
