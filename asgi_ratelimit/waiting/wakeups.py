"""Wake-ups: what a waiting caller sleeps on. Each is set to a time, and any thread may set it to another one.

A sleep is one wait of the event loop, or of the thread: nothing polls, and no lock is held during it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from threading import Event, get_ident
from typing import Protocol

from ..clock import Clock, time_of, wait_for


class WakeUp(Protocol):
    """A time at which a caller wakes, in microseconds of the clock that the wake-up was made with; at first, never."""

    at_us: float

    def set(self, at_us: float) -> None:
        """Wake the caller at ``at_us``, and no longer at the time set before. Thread-safe."""
        ...


class LoopWakeUp:
    """The wake-up of a task in an event loop."""

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self._now = time_of(clock)
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._changed: asyncio.Future[None] | None = None

    def set(self, at_us: float) -> None:
        """Wake the task at ``at_us``."""
        self.at_us = at_us
        if get_ident() == self._thread:
            self._notify()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
                self._loop.call_soon_threadsafe(self._notify)

    async def sleep(self) -> None:
        """Sleep until the time that is set."""
        while (left_us := self.at_us - self._now()) > 0:
            self._changed = self._loop.create_future()
            timer = None if left_us == math.inf else self._loop.call_later(left_us / 1e6, self._notify)
            try:
                await self._changed
            finally:
                if timer is not None:
                    timer.cancel()

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class ThreadWakeUp:
    """The wake-up of a thread."""

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self._clock = clock
        self._now = time_of(clock)
        self._changed = Event()

    def set(self, at_us: float) -> None:
        """Wake the thread at ``at_us``."""
        self.at_us = at_us
        self._changed.set()

    def block(self) -> None:
        """Block this thread until the time that is set."""
        while (left_us := self.at_us - self._now()) > 0:
            wait_for(self._changed, left_us / 1e6, self._clock)
            self._changed.clear()
