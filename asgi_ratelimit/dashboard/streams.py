"""Server-sent events: the state of the page whenever it changes, to a bounded number of pages."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

from ..clock import monotonic_us
from ..errors import StoreError
from .page_state import PageState

MOST_STREAMS = 32
"""The most pages that get events from one process at a time; other pages request the state from time to time."""

LASTS_US = 30e6
"""Microseconds after which a stream ends. The browser opens another one, and ``allow`` is called again."""

_INTERVAL = 0.5
"""Seconds between two reads of the state."""

_IDLE_US = 5e6
"""Microseconds after which the state is sent although nothing but the time has changed."""


class Streams:
    """The streams of one process."""

    def __init__(self, state: PageState) -> None:
        self._state = state
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are ``MOST_STREAMS`` streams."""
        return self._count >= MOST_STREAMS

    async def events(self) -> AsyncIterator[bytes]:
        """The state, once at first and then whenever it has changed, until the time is over or the server stops."""
        if self.is_full:  # other streams have begun since the check
            yield b"retry: 5000\n\n"
            return
        self._count += 1
        try:
            yield b"retry: 500\n\n"
            until_us, sent_us = monotonic_us() + LASTS_US, 0.0
            sent: dict[str, Any] = {}
            while monotonic_us() < until_us and not _server_stops():
                event, values = await self._event()
                if _lasting(values) != _lasting(sent) or monotonic_us() - sent_us > _IDLE_US:
                    sent, sent_us = values, monotonic_us()
                    yield f"event: {event}\ndata: {json.dumps(values, separators=(',', ':'))}\n\n".encode()
                await asyncio.sleep(_INTERVAL)
        finally:
            self._count -= 1

    async def _event(self) -> tuple[str, dict[str, Any]]:
        try:
            return "state", await self._state.read()
        except StoreError as error:
            return "outage", {"error": str(error)}


def _lasting(values: dict[str, Any]) -> dict[str, Any]:
    """The values that do not change merely because time goes on."""
    return {name: value for name, value in values.items() if name not in ("now", "seconds")}


def _server_stops() -> bool:
    """Whether uvicorn is about to stop; it waits for all streams before it informs the app.

    Its server object handles the signal, and so can be found there.
    """
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
