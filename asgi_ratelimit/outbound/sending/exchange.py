"""One exchange with the service: a request is sent, perhaps again, and an answer may be discarded.

Both are steps of a flow, in a task or a thread.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

SMALL_BODY = 65_536
"""The most bytes of an unwanted body that are read to keep its connection, as they come and whatever they say of their
number; for a larger body, the connection is closed."""


@dataclass(slots=True)
class Send:
    """Send a request; the result is the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


def unpaced(response: Any) -> Any:
    """An answer to a request that went at once; it says so, unless a transport that paced it has said otherwise."""
    response.extensions = {"pace": {"waited": 0.0, "attempts": 1}, **response.extensions}
    return response


@dataclass(slots=True)
class Discard:
    """Close an unwanted answer; with ``read``, a small body is read first, which keeps its connection open."""

    response: Any
    read: bool = True

    async def in_task(self) -> None:
        try:
            if self._is_worth_reading():
                left = SMALL_BODY
                async with aclosing(self.response.aiter_raw()) as parts:
                    async for part in parts:
                        left -= len(part)
                        if left < 0:
                            break
        finally:
            await self.response.aclose()

    def in_thread(self) -> None:
        try:
            if self._is_worth_reading():
                left = SMALL_BODY
                for part in self.response.iter_raw():
                    left -= len(part)
                    if left < 0:
                        break
        finally:
            self.response.close()

    def _is_worth_reading(self) -> bool:
        length = self.response.headers.get("content-length", "")
        is_small = length.isdecimal() and int(length) <= SMALL_BODY
        return self.read and is_small and not self.response.is_closed


def can_be_sent_again(request: Any) -> bool:
    """Whether the whole body of a request of httpx or httpx2 is at hand, so that a second attempt carries all of it."""
    try:
        return isinstance(request.content, bytes)
    except Exception:  # noqa: BLE001  # the error of a body that is not in memory; each of them has its own
        return _can_be_read_twice(request.stream)


def _can_be_read_twice(stream: Any) -> bool:
    """Whether a stream is one of bytes, or is a multipart body whose files are in memory or seekable."""
    fields = getattr(stream, "fields", None)
    if not isinstance(fields, list):
        return type(stream).__name__ == "ByteStream"
    files = [getattr(field, "file", b"") for field in fields]
    return all(isinstance(file, (str, bytes)) or _is_seekable(file) for file in files)


def _is_seekable(file: Any) -> bool:
    try:
        return bool(file.seekable())
    except Exception:  # noqa: BLE001  # the program may give any object as a file
        return False
