"""The counts of each rule in this process: plain numbers, which requests add to and a publisher reads.

A request adds to two of them, and calls no function of this package for that. What is counted never goes down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, Protocol, TypeAlias
from weakref import ref

from ..decision import Charge, Decision
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

    def count_refusal(self, bucket: str, is_shadow: bool) -> None:
        """Count a refusal by a bucket of this rule."""
        self.refusals.append(bucket)
        if is_shadow:
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
            allowed, names = decision.allowed, []
            for charge in decision.take.charges if allowed else _refusing(decision):
                name = charge.name or ""
                if name not in names and not (allowed and charge.quota.name in RESERVED_NAMES):
                    names.append(name)
                    rule, bucket = self[name], charge.bucket
                    rule.requests.append(bucket)
                    if decision.degraded:
                        rule.degraded += 1
                    if allowed:
                        rule.admitted += 1
                    else:
                        rule.count_refusal(bucket, decision.shadow)


def _refusing(decision: Decision) -> Sequence[Charge]:
    """The charges that are refused; those of all rules, if an outage refuses, and not a quota."""
    refused = [each for each, state in zip(decision.charges, decision.states) if not state.allowed]
    return refused or [each for each in decision.charges if each.quota.name not in RESERVED_NAMES]


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


Row: TypeAlias = dict[str, Any]
"""The published values of one queue or bucket; JSON can represent all of them."""


class OutboundSource(Protocol):
    """An object with queues or limits that are published."""

    def outbound_rows(self) -> Iterable[Row]:
        """The rows to publish now; called from any thread."""
        ...


class OutboundSources:
    """The sources of this process; they are held weakly."""

    def __init__(self) -> None:
        self._sources: list[ref[OutboundSource]] = []

    def add(self, source: OutboundSource) -> None:
        """Publish the rows of this object too, for as long as it lives."""
        self._sources.append(ref(source, self._sources.remove))

    def rows(self) -> Iterator[Row]:
        """The rows of all of them."""
        for reference in list(self._sources):
            source = reference()
            if source is not None:
                yield from source.outbound_rows()


outbound_sources = OutboundSources()
"""Those of this process."""
