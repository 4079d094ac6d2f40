"""What users' own tests need: a clock that is stepped by hand, and a limiter in memory that goes by it."""

from __future__ import annotations

import math

from ._keys import DEFAULT_NAME
from .limiter import Limiter
from .quota_text import QuotaLike
from .stores import MemoryStore


class SteppedClock:
    """A clock that stands still until it is moved, for either store: ``MemoryStore(clock=SteppedClock())``.

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


class SteppedLimiter(Limiter):
    """A ``Limiter`` for tests: it needs no server, and its time stands still until ``limiter.clock`` is moved."""

    def __init__(self, quota: QuotaLike, *, name: str = DEFAULT_NAME) -> None:
        self.clock = SteppedClock()
        super().__init__(quota, store=MemoryStore(clock=self.clock), name=name)
