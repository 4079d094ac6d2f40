"""How long requests waited for a store, as a histogram of a few numbers."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

BOUNDS_NS = tuple(int(unit * step) for unit in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""The upper bounds of the parts of a histogram, in nanoseconds: from 10 microseconds to 8 seconds."""


@dataclass(slots=True)
class WaitTimes:
    """How many waits each part of the histogram has, and the sum of all waits in nanoseconds."""

    parts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    total_ns: int = 0

    def add(self, wait_ns: int) -> None:
        """Count one wait."""
        self.parts[bisect(BOUNDS_NS, wait_ns)] += 1
        self.total_ns += wait_ns

    def add_all(self, other: WaitTimes) -> None:
        """Count all waits of another histogram."""
        for number, count in enumerate(other.parts):
            self.parts[number] += count
        self.total_ns += other.total_ns

    def since(self, earlier: WaitTimes) -> WaitTimes:
        """The waits that were added since an earlier copy of this histogram."""
        return WaitTimes([now - then for now, then in zip(self.parts, earlier.parts)], self.total_ns - earlier.total_ns)

    def copy(self) -> WaitTimes:
        """A copy of the numbers, which later waits do not change."""
        return WaitTimes(self.parts.copy(), self.total_ns)

    @property
    def count(self) -> int:
        """How many waits there were."""
        return sum(self.parts)

    @property
    def mean(self) -> float:
        """The mean wait in seconds; 0.0 if there was none."""
        return self.total_ns / self.count / 1e9 if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The longest wait in seconds of the quickest ``share``, 0.99 for example, estimated within its part."""
        return _quantile(self.parts, share * self.count) / 1e9


def _quantile(parts: Sequence[int], rank: float) -> float:
    for number, below in enumerate(accumulate(parts)):
        if below and below >= rank:
            upper = BOUNDS_NS[min(number, len(BOUNDS_NS) - 1)]
            lower = BOUNDS_NS[number - 1] if number else 0
            return upper - (below - rank) / parts[number] * (upper - lower) if upper > lower else upper
    return 0.0
