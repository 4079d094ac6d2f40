"""One exchange with a service: a request is sent, perhaps again, and its answer is discarded, or watched.

To send and to discard are steps of a flow, in a task or a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from ...waiting.drivers import Flow, run_async, run_sync

SMALL_BODY = 65_536
"""The most bytes of an unwanted body that are read to keep its connection, as they come and whatever they say of their
number; for a larger body, the connection is closed."""

SMALL_PART = 4096
"""A part of an unwanted body counts as so many bytes at least, so one that comes byte by byte is closed, too."""

MAX_BODY = 1_048_576
"""The least bytes of a body that are kept to settle its request, half from its beginning and half from its end."""

OnClose: TypeAlias = Callable[[], None]
SettleBody: TypeAlias = Callable[[bytes], Flow[None]]


# Requests


@dataclass(slots=True)
class Send:
    """Send a request; the result is the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


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


# Answers that nobody wants


@dataclass(slots=True)
class Discard:
    """Close an unwanted answer; with ``read``, a small body is read first, which keeps its connection open."""

    response: Any
    read: bool = True

    async def in_task(self) -> None:
        try:
            left = self._bytes_to_read()
            with suppress(Exception):  # a body may end, or break off, which concerns nobody
                async with aclosing(self.response.aiter_raw()) as parts:
                    while left > 0:
                        left -= max(len(await anext(parts)), SMALL_PART)
        finally:
            await self.response.aclose()

    def in_thread(self) -> None:
        try:
            left = self._bytes_to_read()
            with suppress(Exception):
                parts = self.response.iter_raw()
                while left > 0:
                    left -= max(len(next(parts)), SMALL_PART)
        finally:
            self.response.close()

    def _bytes_to_read(self) -> int:
        length = self.response.headers.get("content-length", "")
        is_small = length.isdecimal() and int(length) <= SMALL_BODY
        return SMALL_BODY if self.read and is_small and not self.response.is_closed else 0


# Answers that the caller reads


def unpaced(response: Any) -> Any:
    """An answer to a request that went at once; it says so, unless a transport that paced it has said otherwise."""
    response.extensions = {"pace": {"waited": 0.0, "attempts": 1}, **response.extensions}
    return response


def watched(stream: Any, on_close: OnClose, settle: SettleBody | None) -> Any:
    """A body like ``stream`` that calls ``on_close`` once, when it is closed or garbage collected.

    When it is closed, ``settle`` is run after that, with the bytes that were read, 2 MB at most. Clients require that a
    body is an instance of their own base classes, so it has the same ones as ``stream``.
    """
    bases = tuple(base for base in type(stream).__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))
    return _body_class(bases)(stream, on_close, settle)


class _Body:
    def __init__(self, stream: Any, on_close: OnClose, settle: SettleBody | None) -> None:
        self._stream = stream
        self._on_close: OnClose | None = on_close
        self._settle = settle
        self._read_bytes = bytearray()

    @property
    def settles(self) -> bool:
        """Whether the bytes that are read of the body are still to be settled when it is closed."""
        return self._settle is not None

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            self.saw(part)
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self.saw(part)
            yield part

    def saw(self, part: bytes) -> None:
        """Keep a part that was read, if it is to be settled.

        The middle of a long body is left out, because its cost stands at its beginning or its end.
        """
        if self._settle is not None:
            self._read_bytes += part
            if len(self._read_bytes) > 2 * MAX_BODY:
                del self._read_bytes[MAX_BODY // 2 : -MAX_BODY // 2]

    def close(self) -> None:
        """Close the body."""
        try:
            self._stream.close()
        finally:
            run_sync(self._ended())

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._stream.aclose()
        finally:
            await run_async(self._ended())

    def __del__(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _ended(self) -> Flow[None]:
        """Report that the body is closed, and settle it, the first time."""
        settle, self._settle = self._settle, None
        self.__del__()
        if settle is not None:
            yield from settle(bytes(self._read_bytes))


@cache
def _body_class(bases: tuple[type, ...]) -> type:
    return type("PacedBody", (_Body, *bases), {})
