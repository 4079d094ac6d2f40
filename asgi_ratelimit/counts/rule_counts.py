"""The counts of each rule in this process: plain numbers, which requests add to and a publisher reads.

A request adds to two of them, and calls no function of this package for that. What is counted never goes down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from ..decision import Decision
from ..quota_text import RESERVED_NAMES
from ..stores import ByStore, Store
from .waits import WaitTimes

LATEST = 1024
"""The number of requests of a rule that are remembered until the publisher has read them."""


class RuleCounts:
    """The counts of one rule or limiter, and the buckets of its latest requests and refusals.

    ``shadowed`` counts those that a shadow rule would have refused. ``degraded`` counts those that were decided without
    the store, which are also among the admitted or refused ones. ``failed`` counts those in which a function of the
    program failed.
    """

    __slots__ = ("admitted", "degraded", "failed", "refusals", "refused", "requests", "shadowed")

    def __init__(self) -> None:
        self.admitted = 0
        self.refused = 0
        self.shadowed = 0
        self.degraded = 0
        self.failed = 0
        self.requests: deque[str] = deque(maxlen=LATEST)
        self.refusals: deque[str] = deque(maxlen=LATEST)

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """All counts, in the order of ``RESULTS``."""
        return self.admitted, self.refused, self.shadowed, self.degraded, self.failed

    def count(self, bucket: str, is_allowed: bool, decision: Decision) -> None:
        """Count a decision that charges a bucket of this rule."""
        self.requests.append(bucket)
        if decision.degraded:
            self.degraded += 1
        if is_allowed:
            self.admitted += 1
        else:
            self.refusals.append(bucket)
            if decision.shadow:
                self.shadowed += 1
            else:
                self.refused += 1


RESULTS = ("admitted", "refused", "shadowed", "degraded", "failed")
"""The names of the counts of each rule."""


class Counts(dict[str, RuleCounts]):
    """The counts of all rules on one store in this process, by name, and how long requests waited for the store."""

    def __init__(self) -> None:
        self.waits = WaitTimes()
        self.is_published = False
        """Whether a publisher takes care of them."""

    def __missing__(self, name: str) -> RuleCounts:
        return self.setdefault(name, RuleCounts())  # another thread may just have made them

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count decisions: each for the rules that it charges, or, if it is refused, for those that refuse it.

        A decision that an outage refuses, and not a quota, counts as refused by all of its rules.
        """
        for decision in decisions:
            if decision.allowed:
                for name, bucket in _buckets_by_rule(decision).items():
                    self[name].count(bucket, True, decision)
            else:
                for name, bucket in _refusing(decision).items():
                    self[name].count(bucket, False, decision)


def _buckets_by_rule(decision: Decision) -> dict[str, str]:
    """The first bucket of each rule that a decision charges."""
    buckets: dict[str, str] = {}
    for charge in decision.take.charges:
        name = charge.name or ""
        if name not in buckets and charge.quota.name not in RESERVED_NAMES:
            buckets[name] = charge.bucket
    return buckets


def _refusing(decision: Decision) -> dict[str, str]:
    """The first bucket of each rule that refuses; of all rules, if an outage refuses, and not a quota."""
    buckets: dict[str, str] = {}
    for charge, state in zip(decision.charges, decision.states):
        if not state.allowed:
            buckets.setdefault(charge.name or "", charge.bucket)
    return buckets or _buckets_by_rule(decision)


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
