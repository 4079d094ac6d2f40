"""Bounds for replies of a server: parsers make room for as many items as a header states, even for 1,000,000,000."""

from __future__ import annotations

import re
from typing import Any, Final

from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest reply, in bytes. The reply to the largest batch is a small part of it."""

HUGE = re.compile(rb"\n[*%~>|][0-9]{7}")
"""The header of an array, or of another aggregate, with 1,000,000 items or more, behind other data."""

HUGE_AT_START = re.compile(rb"[*%~>|][0-9]{7}")

HEADER: Final = 9
"""Bytes of such a header: this many at the end of an incomplete reply may be the beginning of one."""

TOO_LARGE: Final = "the reply is too large: is that a Redis?"


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]  # a variable of redis-py
    """The parser of redis-py, which reads the answers while it connects, within the same bounds."""

    _tail = b""

    async def read_from_socket(self) -> bool:
        """Read once. Raises ``InvalidResponse`` for a header that is too large."""
        data: Any = await self._stream.read(self._read_size)
        if not data:
            raise RedisConnectionError("the connection was closed by the server")
        scanned = self._tail + data
        if HUGE_AT_START.match(scanned) or HUGE.search(scanned):
            raise InvalidResponse(TOO_LARGE)
        self._tail = scanned[-HEADER:]
        self._reader.feed(data)
        return True
