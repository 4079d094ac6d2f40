"""Searches the keys of a Redis for buckets, a bounded number at a time, so that no command holds it for long."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from ...algorithms.take import used_units
from ...buckets import bucket, escaped, key_in, unescaped
from ...quotas import SECOND_US
from .clients import Commands, RedisLike, server_of

# Keys that Redis looks at for one call. Each that matches takes Redis a few microseconds.
COUNT = 100

# Replies with the next cursor, the time, and the key, value and milliseconds left of each text among those keys.
SCAN = """local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
for at, key in ipairs(found[2]) do found[2][at] = {key, redis.call('GET', key), redis.call('PTTL', key)} end
local time = redis.call('TIME') return {found[1], time[1] * 1000000 + time[2], found[2]}"""

# The name, the quota's name, and the key in the text of a bucket; its kind may stand before the key.
_BUCKET = re.compile(r"([^:{}]*):([^:{}]*):(?:(?:[fr][^:{}]*|i):)?\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """A bucket as it is at one moment; what its quota allows is not stored.

    ``bucket`` is its text. ``name`` is that of a rule or limiter, ``quota`` that of its quota, and ``key`` says whose
    bucket it is (``#`` and a hash for a long key). ``used`` is in units, and ``reset_after`` is the seconds until the
    bucket is as good as new.
    """

    bucket: str
    name: str
    quota: str
    key: str
    used: float
    reset_after: float


class Scan:
    """The buckets of a store, for one event loop; for a cluster, on all of its primaries.

    ``url_or_client`` and ``prefix`` are those of the store, and ``timeout`` is that of one command in seconds.
    ``looked`` counts the keys, and ``is_whole`` says whether all have been seen. Raises ``ConfigurationError`` for
    invalid arguments.
    """

    def __init__(self, url_or_client: RedisLike, *, prefix: str = "rl", timeout: float = 2.0) -> None:
        self._server = server_of(url_or_client, timeout)
        self._prefix = escaped(prefix)
        self._timeout = timeout
        self.looked = 0
        self.is_whole = True

    async def buckets(self, name: str | None = None, key: str | None = None, *, most: int) -> list[StoredBucket]:
        """The buckets under a name and of a key, or all of them; it stops after ``most`` keys.

        Raises ``StoreError`` if Redis does not answer.
        """
        tag = "*" if key is None else bucket("", key)
        pattern = f"{self._prefix}:{'*' if name is None else escaped(name)}:*{tag}"
        commands = Commands(self._server, self._timeout, self._prefix)
        try:
            nodes = [None]
            if self._server.kind == "cluster":
                await commands("GET", f"{self._prefix}:")  # opens the client, which then knows its nodes
                nodes = commands.connection.client.get_primaries()
            found = [each for node in nodes async for each in self._of_node(commands, node, pattern, most)]
            return list({each.bucket: each for each in found}.values())  # Redis may return a key several times
        finally:
            await commands.aclose()

    async def _of_node(self, commands: Commands, node: Any, pattern: str, most: int) -> AsyncIterator[StoredBucket]:
        cursor, is_over = 0, False
        while not is_over:
            cursor, now_us, rows = await commands("EVAL", SCAN, 0, cursor, pattern, COUNT, node=node)
            self.looked += COUNT
            for text, value, left_ms in rows:
                own = text.decode(errors="replace").removeprefix(f"{self._prefix}:")
                if value is not None and (stored := stored_bucket(own, value, float(now_us), int(left_ms) / 1000)):
                    yield stored
            is_over = int(cursor) == 0 or self.looked >= most
        self.is_whole = self.is_whole and int(cursor) == 0


def stored_bucket(text: str, value: bytes, now_us: float, left: float) -> StoredBucket | None:
    """The bucket of this text and value now, which expires in ``left`` seconds; ``None`` if they are not a bucket."""
    match = _BUCKET.fullmatch(text)
    units = used_units(value, now_us, left * SECOND_US)
    if match is None or units is None or units <= 0.0:
        return None
    try:
        name, quota, key = unescaped(match[1]), unescaped(match[2]), key_in(text)
    except ValueError:  # it is not text
        return None
    return StoredBucket(text, name, quota, match[3][1:] if key is None else key, units, max(left, 0.0))
