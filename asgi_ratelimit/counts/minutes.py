"""What one process has counted in one minute, and how it is written into the documents of the store.

The documents are a ring: the document of a minute has a part for each process, and is reused an hour later.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, TypeAlias

from .minute_recordings import Recording, encoded, most_cells
from .rule_counts import RESULTS, Row, RuleCounts
from .waits import WaitTimes

FORMAT = 1
"""The version of what is written; a reader leaves out what has another one."""

MINUTES = 60
"""The number of minutes that can be read back."""

LASTS = 3900.0
"""Seconds after which a written minute is gone."""

FEW = 256
"""Up to this many cells of recordings are written every second; more than that only when the minute is over."""

_RING = 64
_MOST_KEYS, _LEFT_KEYS = 512, 256
_PUBLISHED_KEYS, _FEWEST_PUBLISHED = 200, 2

Numbers: TypeAlias = tuple[int, ...]
"""Counts in the order of ``RESULTS``."""

NONE: Numbers = (0,) * len(RESULTS)


def document_of(minute: int) -> str:
    """The name of the document of a minute since the epoch."""
    return f"counts:{minute % _RING}"


def added(numbers: Iterable[int], more: Iterable[int]) -> Numbers:
    """The sums of two rows of counts."""
    return tuple([one + other for one, other in zip(numbers, more)])


@dataclass(slots=True)
class RuleMinute:
    """The counts of one rule in this minute; requests and refusals by bucket are kept only for buckets with many."""

    numbers: Numbers = NONE
    requests: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    recording: Recording = field(default_factory=Recording)


@dataclass(slots=True, eq=False)
class Minute:
    """Everything that one process has counted in a minute since the epoch; ``seconds`` are the sums over all rules."""

    number: int
    rules: dict[str, RuleMinute] = field(default_factory=dict)
    seconds: dict[int, Numbers] = field(default_factory=dict)
    waits: WaitTimes = field(default_factory=WaitTimes)
    is_over: bool = False
    has_news: bool = False
    """Whether something was added that is not written yet."""

    def add(self, name: str, second: int, numbers: Numbers, counts: RuleCounts) -> None:
        """Add the counts of a rule in one second; its latest requests and refusals are read and forgotten."""
        rule = self.rules.setdefault(name, RuleMinute())
        rule.numbers = added(rule.numbers, numbers)
        self.has_news = True
        self.seconds[second] = added(self.seconds.get(second, NONE), numbers)
        admitted, refused, shadowed = numbers[:3]
        requests = _emptied(counts.requests, admitted + refused + shadowed)
        rule.recording.add(second, requests, most_cells(len(self.rules)))
        _add_most(rule.requests, requests)
        _add_most(rule.refusals, _emptied(counts.refusals, refused + shadowed))

    def next(self, number: int) -> Minute:
        """The next minute, in which recordings begin as they are now."""
        most = most_cells(len(self.rules))
        rules = {name: RuleMinute(recording=rule.recording.next(most)) for name, rule in self.rules.items()}
        return Minute(number, {name: rule for name, rule in rules.items() if rule.recording != Recording()})

    def content(
        self, process: Mapping[str, Any], quotas: Mapping[str, list[str]], penalties: list[str], outbound: list[Row]
    ) -> bytes:
        """This minute as the part of a document: JSON, and the recordings after a line break."""
        most = min(20, max(_FEWEST_PUBLISHED, _PUBLISHED_KEYS // max(len(self.rules), 1)))
        values = {
            "format": FORMAT,
            **process,
            "minute": self.number,
            "rules": {name: rule.numbers for name, rule in self.rules.items() if any(rule.numbers)},
            "seconds": [[second, *numbers] for second, numbers in self.seconds.items()],
            "waits": [self.waits.total_ns, self.waits.parts],
            "keys": [row for name, rule in self.rules.items() for row in _top_keys(name, rule, most)],
            "quotas": quotas,
            "penalties": penalties,
            "outbound": outbound,
        }
        return json.dumps(values, separators=(",", ":")).encode() + b"\n" + self._recordings()

    def _recordings(self) -> bytes:
        """The recordings to write: all of them once the minute is over or if they are small, otherwise none."""
        recordings = {name: rule.recording for name, rule in self.rules.items()}
        return encoded(recordings if self.is_over or sum(each.cells for each in recordings.values()) <= FEW else {})


def _emptied(latest: deque[str], count: int) -> Counter[str]:
    """Empty the latest buckets; return their counts, scaled up to ``count`` if there were more than are remembered."""
    buckets = [latest.popleft() for _ in range(len(latest))]  # other threads may append meanwhile
    read = Counter(buckets)
    if buckets and count > len(buckets):
        scale = count / len(buckets)
        return Counter({bucket: round(each * scale) for bucket, each in read.items()})
    return read


def _add_most(counter: Counter[str], more: Counter[str]) -> None:
    """Add counts, and forget the smallest if there are too many."""
    counter.update(more)
    if len(counter) > _MOST_KEYS:
        largest = counter.most_common(_LEFT_KEYS)
        counter.clear()
        counter.update(dict(largest))


def _top_keys(name: str, rule: RuleMinute, most: int) -> list[list[Any]]:
    """The buckets with the most refusals and those with the most requests: name, bucket, requests, refusals."""
    refused = nlargest(most, rule.refusals, key=rule.refusals.__getitem__)
    asking = nlargest(most, rule.requests, key=rule.requests.__getitem__)
    both = dict.fromkeys([*refused, *asking])
    return [[name, bucket, rule.requests[bucket], rule.refusals[bucket]] for bucket in both]
