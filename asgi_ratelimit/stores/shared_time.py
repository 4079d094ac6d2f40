"""The time that all processes on a store share, whatever their own clocks say."""

from __future__ import annotations

import math

from ..clock import SystemClock, monotonic_us
from . import Store
from .base import ByStore
from .documents import documents

LOOK_EVERY_US = 60_000_000.0
"""The least microseconds between two comparisons of the clocks."""


class SharedTime:
    """The time by the clock of a store, or by that of its server if the store has no clock of its own."""

    def __init__(self, store: Store) -> None:
        clock = getattr(store, "clock", None)
        self._own_us = (clock or SystemClock()).now_us
        self._documents = documents(store)
        self._is_elsewhere = not store.in_process and clock is None
        self._ahead_us = 0.0
        self._looked_us = -math.inf

    def now_us(self) -> float:
        """Microseconds since the Unix epoch."""
        return self._own_us() + self._ahead_us

    async def look(self) -> None:
        """Compare both clocks, if that was not done within the last minute. Raises ``StoreError``."""
        if not self._is_elsewhere or monotonic_us() - self._looked_us < LOOK_EVERY_US:
            return
        before_us = self._own_us()
        server_us = await self._documents.now_us()
        after_us = self._own_us()
        self._looked_us = monotonic_us()
        is_equal = before_us <= server_us <= after_us
        self._ahead_us = 0.0 if is_equal else server_us - (before_us + after_us) / 2.0


_times: ByStore[SharedTime] = ByStore()


def shared_time(store: Store) -> SharedTime:
    """The time that processes on a store share. Raises ``ConfigurationError`` for a store without documents."""
    return _times.get(store) or _times.made(store, SharedTime)
