"""What a process counts in a minute, of each rule and of all requests; and how that is written and read back.

The document of a minute has a part for each process. A part holds recordings too: how many requests some clients sent
in each second, so that another limit can be tried on it. Clients are recorded whole or not at all: those whose checksum
is below a bound, which is the same in every process. A rule with too many of them lowers the bound, and forgets the
others. No key is recorded, only its checksum.
"""

from __future__ import annotations

import json
import math
import zlib
from bisect import bisect
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add, itemgetter, sub
from typing import Any, TypeAlias

from ..buckets import key_in
from ..stores.documents import MAX_BYTES

FORMAT = 3
"""The version of what is written; a reader leaves out what has another one."""

MINUTES = 60
"""The number of minutes that can be read back."""

LATEST = 1024
"""The number of requests of a rule that are remembered until they are collected."""

ALL = 2**32
"""A bound above all checksums."""

MOST_CELLS = 4096
"""The most seconds with requests that are recorded in a minute, of all rules together."""

FEW = 256
"""Up to this many cells of recordings are written every second; more than that only when the minute is over."""

MOST_KEYS, LEFT_KEYS, WRITTEN_KEYS = 2048, 1024, 200
"""The most keys that are counted in a minute, the worst ones that are left of more, and those that are written."""

BOUNDS_NS = tuple(int(unit * step) for unit in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""The upper bounds of the parts of a histogram, in nanoseconds: from 10 microseconds to 8 seconds."""

Numbers: TypeAlias = tuple[int, ...]
"""Counts of what was admitted, refused, shadowed, degraded and failed, in this order."""

NONE: Numbers = (0, 0, 0, 0, 0)


def added(numbers: Numbers, more: Numbers) -> Numbers:
    """The sums of two rows of counts."""
    return tuple(map(add, numbers, more))


def document_of(minute: int) -> str:
    """The name of the document of a minute since the epoch."""
    return f"counts:{minute}"


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
    """A histogram of waits: how many there were in each part."""

    parts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))

    def add(self, wait_ns: int) -> None:
        """Count one wait."""
        self.parts[bisect(BOUNDS_NS, wait_ns)] += 1

    def add_all(self, parts: list[int]) -> None:
        """Count the waits of another histogram."""
        self.parts = list(map(add, self.parts, parts))

    @property
    def count(self) -> int:
        """How many waits there were."""
        return sum(self.parts)

    def quantile(self, share: float) -> float:
        """The longest wait in seconds of the quickest ``share``, 0.99 for example: the upper bound of its part."""
        for bound, below in zip((*BOUNDS_NS, BOUNDS_NS[-1]), accumulate(self.parts)):
            if below and below >= share * self.count:
                return bound / 1e9
        return 0.0


@dataclass(slots=True)
class Recording:
    """The requests of one rule in one minute: by the checksum of the client's bucket and the second."""

    below: int = ALL
    cells: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, second: int, requests: Mapping[str, int], most: int) -> None:
        """Record requests by bucket, all in one second; then forget clients until at most ``most`` cells are left."""
        for bucket, count in requests.items():
            client = zlib.crc32(bucket.encode())
            if client < self.below:
                self.cells[client, second] += count
        while self.below > 1 and len(self.cells) > most:
            self.below >>= 1
            self.cells = Counter({cell: count for cell, count in self.cells.items() if cell[0] < self.below})


@dataclass(slots=True)
class Minute:
    """Everything that one process has counted in a minute since the epoch.

    ``seconds`` are the counts of requests, each of which counts once, however many rules it has. ``keys`` are the
    refusals and requests of rules by bucket.
    """

    number: int
    rules: dict[str, Numbers] = field(default_factory=dict)
    seconds: dict[int, Numbers] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    recordings: dict[str, Recording] = field(default_factory=dict)
    waits: WaitTimes = field(default_factory=WaitTimes)
    is_over: bool = False
    has_news: bool = False
    """Whether it is to be written."""

    def add(self, name: str, second: int, numbers: Numbers, counts: RuleCounts) -> None:
        """Add the counts of a rule in one second; its latest requests and refusals are read and forgotten."""
        admitted, refused, shadowed, *_ = numbers
        refusals = _emptied(counts.refusals, refused + shadowed)
        requests = _emptied(counts.requests, admitted + refused + shadowed)
        self.rules[name] = added(self.rules.get(name, NONE), numbers)
        recording = self.recordings.setdefault(name, Recording())
        recording.add(second, requests, MOST_CELLS // len(self.rules))
        for bucket in requests | refusals:
            before = self.keys.get((name, bucket), (0, 0))
            self.keys[name, bucket] = before[0] + refusals[bucket], before[1] + requests[bucket]
        if len(self.keys) > MOST_KEYS:
            self.keys = dict(self._worst(LEFT_KEYS))

    def _worst(self, most: int) -> list[tuple[tuple[str, str], tuple[int, int]]]:
        """The keys with the most refusals, and of equal ones those with the most requests."""
        return sorted(self.keys.items(), key=itemgetter(1), reverse=True)[:most]

    def content(self, values: Mapping[str, Any]) -> bytes:
        """This minute as the part of a document, with other ``values``: JSON, and the recordings after a line break.

        All recordings are written once the minute is over or if they are small, otherwise none.
        """
        head = {
            "format": FORMAT,
            **values,
            "minute": self.number,
            "rules": self.rules,
            "seconds": [[second, *numbers] for second, numbers in self.seconds.items()],
            "waits": self.waits.parts,
            "keys": [[*key, sent, refused] for key, (refused, sent) in self._worst(WRITTEN_KEYS)],
        }
        is_written = self.is_over or sum([len(each.cells) for each in self.recordings.values()]) <= FEW
        return _json(head) + b"\n" + encoded(self.recordings if is_written else {})


def _json(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()


def _emptied(latest: deque[str], count: int) -> Counter[str]:
    """Empty the latest buckets; return their counts, scaled up to ``count`` if there were more than are remembered."""
    buckets = [latest.popleft() for _ in range(len(latest))]  # other threads may append meanwhile
    scale = max(count / len(buckets), 1) if buckets else 1
    return Counter({bucket: round(each * scale) for bucket, each in Counter(buckets).items()})


def encoded(recordings: Mapping[str, Recording]) -> bytes:
    """The recordings of all rules, by name, as bytes."""
    rows = {name: [each.below, [[*cell, n] for cell, n in each.cells.items()]] for name, each in recordings.items()}
    return zlib.compress(_json(rows), 1)


def recording_in(content: bytes, name: str) -> Recording | None:
    """The recording of one rule in such bytes; ``None`` if there is none, or something else."""
    try:
        read = json.loads(zlib.decompressobj().decompress(content, MAX_BYTES)).get(name)
    except (AttributeError, RecursionError, ValueError, zlib.error):
        return None
    if not _fits(read, (int, [(int, int, int)])):
        return None
    return Recording(read[0], Counter({(client, second): count for client, second, count in read[1]}))


Part: TypeAlias = dict[str, Any]
"""What one process has counted in one minute, read back: the values of ``Minute.content``.

Its ``outbound`` rows are ``queues`` and ``learned``, and its ``recordings`` are bytes for ``recording_in``.
"""

_NUMBERS = (int,) * len(NONE)
_VALUES = {
    "process": str,
    "started": int,
    "rules": {str: _NUMBERS},
    "seconds": [(int, *_NUMBERS)],
    "waits": (int,) * len(WaitTimes().parts),
    "keys": [(str, str, int, int)],
    "quotas": {str: [str]},
    "penalties": [str],
    "outbound": [list],
}
"""What readers rely on."""

_QUEUE, _LEARNED = (str, int), (str, str, float, float, int, int, int)
"""The outbound rows: the values of ``QueueRow`` and ``LearnedRow`` behind the process."""


def part_of(content: bytes, minute: int) -> Part | None:
    """The part in these bytes; ``None`` unless it belongs to that minute, and holds all that readers rely on.

    Of the rows of queues and servers, those that are not right are left out.
    """
    head, _, recordings = content.partition(b"\n")
    try:
        part = json.loads(head)
        json.dumps(part, ensure_ascii=False).encode()  # half a character is no text
        if part["format"] != FORMAT or part["minute"] != minute:
            return None
        if not all(_fits(part[name], shape) for name, shape in _VALUES.items()):
            return None
        for _, bucket, _, _ in part["keys"]:
            key_in(bucket)
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    queues = [row for row in part["outbound"] if _fits(row, _QUEUE)]
    learned = [row for row in part["outbound"] if _fits(row, _LEARNED)]
    return {**part, "queues": queues, "learned": learned, "recordings": recordings}


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value of JSON has a shape: a mapping of any names, a list of any length, or a list of these."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_fits(each, shape[str]) for each in value.values())
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(each, shape[0]) for each in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(_fits, value, shape))
    if shape is int:
        return type(value) is int and 0 <= value < 2**53  # what JavaScript knows exactly
    if shape is float:
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    return isinstance(value, shape)
