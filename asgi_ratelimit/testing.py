"""What users' own tests need: a clock that is stepped by hand."""

from __future__ import annotations

import math


class SteppedClock:
    """A clock that stands still until it is moved: ``MemoryStore(clock=SteppedClock())``.

    It starts at ``now`` seconds since the epoch, and keeps whole microseconds.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now_us = round(now * 1e6)

    def __repr__(self) -> str:
        return f"SteppedClock({self.now})"

    @property
    def now(self) -> float:
        """The time in seconds since the epoch."""
        return self._now_us / 1e6

    def now_us(self) -> int:
        """The time in microseconds since the epoch."""
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move by ``seconds``, rounded up to whole microseconds; below 0 sets the clock back."""
        self._now_us += math.ceil(round(seconds * 1e6, 3))

    def move_to(self, now: float) -> None:
        """Set the time to ``now`` seconds since the epoch."""
        self._now_us = round(now * 1e6)
