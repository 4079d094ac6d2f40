"""Server-sent events: the state of the page whenever it changes, to a bounded number of pages."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

from ..clock import monotonic_us
from ..errors import StoreError
from .state import State

MOST_STREAMS = 32
"""The most pages that get events from one process at a time; others ask for the state from time to time."""

LASTS_US = 30e6
"""Microseconds after which a stream ends. The browser opens another one, and ``allow`` is asked again."""

_INTERVAL = 0.5
"""Seconds between two looks at the state."""


class Streams:
    """The streams of one process."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
        return self._count >= MOST_STREAMS

    async def events(self) -> AsyncIterator[bytes]:
        """The state, and again whenever it has changed, until the time is over or the server stops."""
        self._count += 1
        try:
            yield b"retry: 500\n\n"
            until_us, sent = monotonic_us() + LASTS_US, ""
            while monotonic_us() < until_us and not _server_stops():
                event, text = await self._event()
                if text != sent:
                    sent = text
                    yield f"event: {event}\ndata: {text}\n\n".encode()
                await asyncio.sleep(_INTERVAL)
        finally:
            self._count -= 1

    async def _event(self) -> tuple[str, str]:
        try:
            return "state", json.dumps(await self._state.read(), separators=(",", ":"))
        except StoreError as error:
            return "outage", json.dumps({"error": str(error)})


def _server_stops() -> bool:
    """Whether uvicorn, which waits for all streams before it says so to the app, has been asked to stop.

    Its server object handles the signal, and so is at hand there.
    """
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
