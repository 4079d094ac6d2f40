"""The only module that reads a clock. Everything else is told the time."""

from __future__ import annotations

import time
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


def monotonic_us() -> float:
    """Microseconds on a clock that never jumps and starts anywhere: for the time between two moments."""
    return time.monotonic_ns() / 1000
