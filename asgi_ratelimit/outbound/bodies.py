"""Bodies of answers that tell when they are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any


def told_when_closed(stream: Any, closed: Callable[[], None]) -> Any:
    """A body that is just like ``stream``, and calls ``closed`` once, when it is closed or forgotten.

    Clients insist that a body is of their own base classes, so it is of the same ones.
    """
    bases = tuple(base for base in type(stream).__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))
    return _kind_of(bases)(stream, closed)


class _Body:
    def __init__(self, stream: Any, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed: Callable[[], None] | None = closed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    def close(self) -> None:
        """Close the body."""
        try:
            self._stream.close()
        finally:
            self._tell()

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._stream.aclose()
        finally:
            self._tell()

    def __del__(self) -> None:
        self._tell()

    def _tell(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()


@cache
def _kind_of(bases: tuple[type, ...]) -> type:
    return type("PacedBody", (_Body, *bases), {})
