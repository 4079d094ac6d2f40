"""Bodies of answers that call a function when they are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any


def with_close_callback(stream: Any, on_close: Callable[[], None]) -> Any:
    """A body like ``stream`` that calls ``on_close`` once, when it is closed or garbage collected.

    Clients require that a body is an instance of their own base classes, so it has the same ones as ``stream``.
    """
    bases = tuple(base for base in type(stream).__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))
    return _body_class(bases)(stream, on_close)


class _Body:
    def __init__(self, stream: Any, on_close: Callable[[], None]) -> None:
        self._stream = stream
        self._on_close: Callable[[], None] | None = on_close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    def close(self) -> None:
        """Close the body."""
        try:
            self._stream.close()
        finally:
            self._call_back()

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._stream.aclose()
        finally:
            self._call_back()

    def __del__(self) -> None:
        self._call_back()

    def _call_back(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


@cache
def _body_class(bases: tuple[type, ...]) -> type:
    return type("PacedBody", (_Body, *bases), {})
