"""What a process counts: plain numbers of each rule, its latest buckets, and how long requests waited for the store."""

from __future__ import annotations

from bisect import bisect
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add, sub
from typing import TypeAlias

LATEST = 1024
"""The number of requests of a rule that are remembered until they are collected."""

BOUNDS_NS = tuple(int(unit * step) for unit in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""The upper bounds of the parts of a histogram, in nanoseconds: from 10 microseconds to 8 seconds."""

Numbers: TypeAlias = tuple[int, ...]
"""Counts of what was admitted, refused, shadowed, degraded and failed, in this order."""

NONE: Numbers = (0, 0, 0, 0, 0)

ADMITTED, REFUSED, SHADOWED, DEGRADED, FAILED = range(5)
"""The places of these counts."""


def added(numbers: Numbers, more: Numbers) -> Numbers:
    """The sums of two rows of counts."""
    return tuple(map(add, numbers, more))


class RuleCounts:
    """The counts of one rule or limiter, which never go down, and the buckets of its latest requests and refusals.

    Shadowed are those that a shadow rule would have refused. Degraded are those that were decided without the store,
    which are also among the admitted or refused ones. Failed are those in which a function of the program failed.
    """

    __slots__ = ("_collected", "numbers", "refusals", "requests")

    def __init__(self) -> None:
        self.numbers = list(NONE)
        self.requests: deque[str] = deque(maxlen=LATEST)
        self.refusals: deque[str] = deque(maxlen=LATEST)
        self._collected = NONE

    def collect(self) -> Numbers:
        """What was counted since the last call; other threads may count meanwhile."""
        before, self._collected = self._collected, tuple(self.numbers)
        return tuple(map(sub, self._collected, before))


@dataclass(slots=True)
class WaitTimes:
    """A histogram of waits: how many each part has, and the sum of all waits in nanoseconds."""

    parts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    total_ns: int = 0

    def add(self, wait_ns: int) -> None:
        """Count one wait."""
        self.parts[bisect(BOUNDS_NS, wait_ns)] += 1
        self.total_ns += wait_ns

    def add_all(self, other: WaitTimes) -> None:
        """Count all waits of another histogram."""
        self.parts = list(map(add, self.parts, other.parts))
        self.total_ns += other.total_ns

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
        rank, bounds = share * self.count, (0, *BOUNDS_NS, BOUNDS_NS[-1])
        for lower, upper, count, below in zip(bounds, bounds[1:], self.parts, accumulate(self.parts)):
            if below and below >= rank:
                return (upper - (below - rank) / count * (upper - lower)) / 1e9
        return 0.0
