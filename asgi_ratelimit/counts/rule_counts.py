"""The counts of each rule in this process: plain numbers, which requests add to and a publisher reads.

A request adds to a few of them, and calls no function of this package for that. What is counted never goes down.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import TypeAlias

from ..decision import Decision
from ..quota_text import RESERVED_NAMES
from ..stores import ByStore, Store

LATEST = 1024
"""The number of requests of a rule that are remembered until the publisher has read them."""

BOUNDS_NS = tuple(int(unit * step) for unit in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""The upper bounds of the parts of a histogram, in nanoseconds: from 10 microseconds to 8 seconds."""

Numbers: TypeAlias = tuple[int, ...]
"""Counts of what was admitted, refused, shadowed, degraded and failed, in this order."""

NONE: Numbers = (0, 0, 0, 0, 0)

ADMITTED, REFUSED, SHADOWED, DEGRADED = range(4)
"""The places of the counts that decisions add to."""


class RuleCounts:
    """The counts of one rule or limiter, and the buckets of its latest requests and refusals.

    ``shadowed`` counts those that a shadow rule would have refused. ``degraded`` counts those that were decided without
    the store, which are also among the admitted or refused ones. ``failed`` counts those in which a function of the
    program failed.
    """

    __slots__ = ("admitted", "degraded", "failed", "refusals", "refused", "requests", "shadowed")

    def __init__(self) -> None:
        self.admitted = self.refused = self.shadowed = self.degraded = self.failed = 0
        self.requests: deque[str] = deque(maxlen=LATEST)
        self.refusals: deque[str] = deque(maxlen=LATEST)

    @property
    def numbers(self) -> Numbers:
        """All counts."""
        return self.admitted, self.refused, self.shadowed, self.degraded, self.failed


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
        self.parts = [one + more for one, more in zip(self.parts, other.parts)]
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


class Counts(dict[str, RuleCounts]):
    """The counts of all rules on one store in this process, by name, and how long requests waited for the store.

    A request counts for each of its rules. ``repeats`` says how much the sums over all rules are more than the counts
    of requests are, each counted once: as refused, or else as shadowed, or else as admitted.
    """

    def __init__(self) -> None:
        self.repeats = [0] * len(NONE)
        self.waits = WaitTimes()
        self.is_published = False
        """Whether a publisher takes care of them."""

    def __missing__(self, name: str) -> RuleCounts:
        return self.setdefault(name, RuleCounts())  # another thread may just have made them

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count the decisions of one request: each for the rules that it charges, or for those that refuse it.

        A decision that an outage refuses, and not a quota, counts as refused by all of its rules.
        """
        first = None
        for decision in decisions:
            allowed, names = decision.allowed, []
            refusing = decision.take.charges if allowed else decision.refusing
            for charge in refusing or decision.take.charges:
                name = charge.name or ""
                if name in names or ((allowed or not refusing) and charge.quota.name in RESERVED_NAMES):
                    continue
                names.append(name)
                rule, bucket = self[name], charge.bucket
                rule.requests.append(bucket)
                if decision.degraded:
                    rule.degraded += 1
                if allowed:
                    rule.admitted += 1
                    continue
                rule.refusals.append(bucket)
                if decision.shadow:
                    rule.shadowed += 1
                else:
                    rule.refused += 1
            again = len(names)
            if first is None and again:
                first, again = decision, again - 1
            if first is not None and again:
                result = ADMITTED if allowed else SHADOWED if decision.shadow else REFUSED
                self.repeats[result] += again
                if first.allowed and not allowed:  # the request counts as this instead
                    self.repeats[result] -= 1
                    self.repeats[ADMITTED] += 1
                    first = decision
                if decision.degraded:
                    self.repeats[DEGRADED] += again


_counts: ByStore[Counts] = ByStore()
_lock = Lock()


def counts_of(store: Store) -> Counts:
    """The counts of this process on a store, shared by all users of that object."""
    counts = _counts.get(store)
    if counts is None:
        with _lock:
            counts = _counts.get(store)
            if counts is None:
                counts = _counts[store] = Counts()
    return counts
