"""The only module that reads a clock, or waits for one. Everything else gets the time from here."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import TIMEOUT_MAX, Event
from typing import Protocol


class Clock(Protocol):
    """An object that returns the time as whole microseconds since the Unix epoch."""

    def now_us(self) -> int:
        """The time now, in microseconds since the Unix epoch."""


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        """The time now, in microseconds since the Unix epoch."""
        return time.time_ns() // 1000


def monotonic_us() -> float:
    """Microseconds on a clock that never jumps and has no defined start, to measure the time between two moments."""
    return time.monotonic_ns() / 1000


def time_of(clock: Clock | None) -> Callable[[], float]:
    """The function that measures waits: that of the clock which replaces the machine's, or else ``monotonic_us``."""
    return monotonic_us if clock is None or isinstance(clock, SystemClock) else clock.now_us


def wait_for(event: Event, seconds: float, clock: Clock | None = None) -> None:
    """Block this thread until ``event`` is set, at most for ``seconds``, or as the clock's own ``wait`` does."""
    wait = getattr(clock, "wait", None)
    if wait is None:
        event.wait(min(seconds, TIMEOUT_MAX))
    else:
        wait(event, seconds)
