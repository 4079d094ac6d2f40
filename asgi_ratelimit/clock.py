"""The only module that reads a clock, or waits for one. Everything else is told the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import TIMEOUT_MAX, Event
from typing import Protocol


class Clock(Protocol):
    """Whatever tells the time as whole microseconds since the Unix epoch."""

    def now_us(self) -> int:
        """The time now, in microseconds since the Unix epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        """The time now, in microseconds since the Unix epoch."""
        return time.time_ns() // 1000


def _system_us() -> float:
    return float(time.time_ns() // 1000)


def float_us_of(clock: Clock) -> Callable[[], float]:
    """``now_us`` of a clock as a float, and of the machine's without a detour."""
    return _system_us if type(clock) is SystemClock else lambda: float(clock.now_us())


def monotonic_us() -> float:
    """Microseconds on a clock that never jumps and starts anywhere: for the time between two moments."""
    return time.monotonic_ns() / 1000


_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed_us() -> float:
    """As ``monotonic_us``, but it goes on while the machine is suspended, wherever the system has such a clock."""
    return monotonic_us() if _AWAKE_OR_NOT is None else time.clock_gettime_ns(_AWAKE_OR_NOT) / 1000


def time_of(clock: Clock | None) -> Callable[[], float]:
    """What to measure waits by: a clock that was put in the place of the machine's, or else ``elapsed_us``."""
    return elapsed_us if clock is None or isinstance(clock, SystemClock) else clock.now_us


def wait_for(event: Event, seconds: float, clock: Clock | None = None) -> None:
    """Block this thread until ``event`` is set, at most for ``seconds``; a clock may have its own way to wait."""
    wait = getattr(clock, "wait", None)
    if wait is None:
        event.wait(min(seconds, TIMEOUT_MAX))
    else:
        wait(event, seconds)
