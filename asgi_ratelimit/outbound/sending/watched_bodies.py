"""Bodies of answers that report when they are closed, and what was read of them until then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from ...waiting import Flow, run_async, run_sync
from .settling import MAX_BODY

OnClose: TypeAlias = Callable[[], None]
Settle: TypeAlias = Callable[[bytes], Flow[None]]


def watched(stream: Any, on_close: OnClose, settle: Settle | None) -> Any:
    """A body like ``stream`` that calls ``on_close`` once, when it is closed or garbage collected.

    When it is closed, ``settle`` is run after that, with the bytes that were read, 2 MB at most. Clients require that a
    body is an instance of their own base classes, so it has the same ones as ``stream``.
    """
    bases = tuple(base for base in type(stream).__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))
    return _body_class(bases)(stream, on_close, settle)


class _Body:
    def __init__(self, stream: Any, on_close: OnClose, settle: Settle | None) -> None:
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
            settle = self._ended()
            if settle is not None:
                run_sync(settle)

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._stream.aclose()
        finally:
            settle = self._ended()
            if settle is not None:
                await run_async(settle)

    def __del__(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _ended(self) -> Flow[None] | None:
        """Report that the body is closed; the first time, return the flow that settles it."""
        settle, self._settle = self._settle, None
        self.__del__()
        return None if settle is None else settle(bytes(self._read_bytes))


@cache
def _body_class(bases: tuple[type, ...]) -> type:
    return type("PacedBody", (_Body, *bases), {})
