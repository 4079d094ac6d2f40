"""Alarms: what a waiting caller sleeps on. Each is set for a time, and anybody may set it for another, from anywhere.

A sleep is one wait of the event loop, or of the thread: nothing polls, and no lock is held meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from threading import Event, get_ident
from typing import Protocol

from ..clock import Clock, time_of, wait_for


class Alarm(Protocol):
    """Whatever can be set for a time, in microseconds of the clock that it was made with; at first, for never."""

    at_us: float

    def set(self, at_us: float) -> None:
        """Go off at ``at_us`` and not at the time before; thread-safe."""
        ...


class LoopAlarm:
    """For a task of an event loop."""

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self._now = time_of(clock)
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._woken: asyncio.Future[None] | None = None

    def set(self, at_us: float) -> None:
        """Go off at ``at_us``."""
        self.at_us = at_us
        if get_ident() == self._thread:
            self._wake()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)

    async def sleep(self) -> None:
        """Until it goes off."""
        while (left_us := self.at_us - self._now()) > 0:
            self._woken = self._loop.create_future()
            timer = None if left_us == math.inf else self._loop.call_later(left_us / 1e6, self._wake)
            try:
                await self._woken
            finally:
                if timer is not None:
                    timer.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class ThreadAlarm:
    """For a thread."""

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self._clock = clock
        self._now = time_of(clock)
        self._woken = Event()

    def set(self, at_us: float) -> None:
        """Go off at ``at_us``."""
        self.at_us = at_us
        self._woken.set()

    def block(self) -> None:
        """Until it goes off."""
        while (left_us := self.at_us - self._now()) > 0:
            wait_for(self._woken, left_us / 1e6, self._clock)
            self._woken.clear()
