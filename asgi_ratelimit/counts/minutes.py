"""What a process counts, in numbers of each rule and of all requests; and how a minute of it is written and read back.

The documents are a ring: the document of a minute has a part for each process, and is reused an hour later. A part
holds recordings too: how many requests some clients sent in each second, so that another limit can be tried on it.
Clients are recorded whole or not at all: those whose checksum is below a bound, which is the same in every process. A
rule with too many of them lowers the bound, and forgets the others. No key is recorded, only its checksum.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from bisect import bisect
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add, sub
from typing import Any, TypeAlias

from ..buckets import key_in
from ..stores.documents import MAX_BYTES

FORMAT = 2
"""The version of what is written; a reader leaves out what has another one."""

MINUTES = 60
"""The number of minutes that can be read back."""

LATEST = 1024
"""The number of requests of a rule that are remembered until they are collected."""

ALL = 2**32
"""A bound above all checksums."""

MOST_CELLS, FEWEST_CELLS = 4096, 64
"""The most seconds with requests that are recorded in a minute, of all rules together; and of each in any case."""

FEW = 256
"""Up to this many cells of recordings are written every second; more than that only when the minute is over."""

_MOST_KEYS, _LEFT_KEYS = 1024, 512
_PUBLISHED_KEYS, _FEWEST_PUBLISHED, _MOST_PUBLISHED = 400, 4, 40

BOUNDS_NS = tuple(int(unit * step) for unit in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""The upper bounds of the parts of a histogram, in nanoseconds: from 10 microseconds to 8 seconds."""

_HALF = re.compile(r"[\ud800-\udfff]")
"""Half a character, which is no text."""

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


@dataclass(slots=True)
class Recording:
    """The requests of one rule in one minute: by the checksum of the client's bucket, and by the second."""

    below: int = ALL
    clients: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many seconds with requests are recorded, over all clients."""
        return sum(map(len, self.clients.values()))

    def add(self, second: int, requests: Mapping[str, int], most: int) -> None:
        """Record requests by bucket, all in one second; then forget clients until at most ``most`` cells are left."""
        for bucket, count in requests.items():
            checksum = zlib.crc32(bucket.encode())
            if checksum < self.below:
                seconds = self.clients.setdefault(checksum, {})
                seconds[second] = seconds.get(second, 0) + count
        while self.below > 1 and self.cells > most:
            self.below >>= 1
            self.clients = {client: seconds for client, seconds in self.clients.items() if client < self.below}


@dataclass(slots=True)
class RuleMinute:
    """The counts of one rule in this minute; ``keys`` are the refusals and requests of its worst buckets."""

    numbers: Numbers = NONE
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    recording: Recording = field(default_factory=Recording)

    def worst(self, most: int) -> list[tuple[str, tuple[int, int]]]:
        """The buckets with the most refusals, and of equal ones those with the most requests."""
        return sorted(self.keys.items(), key=lambda item: item[1], reverse=True)[:most]


@dataclass(slots=True)
class Minute:
    """Everything that one process has counted in a minute since the epoch.

    ``seconds`` are the counts of requests, each of which counts once, however many rules it has.
    """

    number: int
    rules: dict[str, RuleMinute] = field(default_factory=dict)
    seconds: dict[int, Numbers] = field(default_factory=dict)
    waits: WaitTimes = field(default_factory=WaitTimes)
    is_over: bool = False
    has_news: bool = False
    """Whether it is to be written."""

    def add(self, name: str, second: int, numbers: Numbers, counts: RuleCounts) -> None:
        """Add the counts of a rule in one second; its latest requests and refusals are read and forgotten."""
        rule = self.rules.setdefault(name, RuleMinute())
        rule.numbers = added(rule.numbers, numbers)
        admitted, refused, shadowed, *_ = numbers
        refusals = _emptied(counts.refusals, refused + shadowed)
        requests = _emptied(counts.requests, admitted + refused + shadowed)
        rule.recording.add(second, requests, max(FEWEST_CELLS, MOST_CELLS // len(self.rules)))
        for bucket in requests | refusals:
            before = rule.keys.get(bucket, (0, 0))
            rule.keys[bucket] = before[0] + refusals[bucket], before[1] + requests[bucket]
        if len(rule.keys) > _MOST_KEYS:
            rule.keys = dict(rule.worst(_LEFT_KEYS))

    def content(self, values: Mapping[str, Any]) -> bytes:
        """This minute as the part of a document, with other ``values``: JSON, and the recordings after a line break.

        All recordings are written once the minute is over or if they are small, otherwise none.
        """
        most = min(_MOST_PUBLISHED, max(_FEWEST_PUBLISHED, _PUBLISHED_KEYS // max(len(self.rules), 1)))
        worst = [(name, *each) for name, rule in self.rules.items() for each in rule.worst(most)]
        head = {
            "format": FORMAT,
            **values,
            "minute": self.number,
            "rules": {name: rule.numbers for name, rule in self.rules.items() if any(rule.numbers)},
            "seconds": [[second, *numbers] for second, numbers in self.seconds.items()],
            "waits": [self.waits.total_ns, self.waits.parts],
            "keys": [[name, bucket, sent, refused] for name, bucket, (refused, sent) in worst],
        }
        recordings = {name: rule.recording for name, rule in self.rules.items()}
        is_written = self.is_over or sum([each.cells for each in recordings.values()]) <= FEW
        return _json(head) + b"\n" + encoded(recordings if is_written else {})


def _json(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()


def _emptied(latest: deque[str], count: int) -> Counter[str]:
    """Empty the latest buckets; return their counts, scaled up to ``count`` if there were more than are remembered."""
    buckets = [latest.popleft() for _ in range(len(latest))]  # other threads may append meanwhile
    scale = max(count / len(buckets), 1) if buckets else 1
    return Counter({bucket: round(each * scale) for bucket, each in Counter(buckets).items()})


def encoded(recordings: Mapping[str, Recording]) -> bytes:
    """The recordings of all rules, by name, as bytes."""
    return zlib.compress(_json({name: [each.below, each.clients] for name, each in recordings.items()}), 1)


def recording_in(content: bytes, name: str) -> Recording | None:
    """The recording of one rule in such bytes; ``None`` if there is none, or something else."""
    try:
        read = json.loads(zlib.decompressobj().decompress(content, MAX_BYTES)).get(name)
        if not _fits(read, (int, {str: {str: int}})) or not 0 < read[0] <= ALL:
            return None
        clients = {int(client): {int(at): n for at, n in cells.items()} for client, cells in read[1].items()}
        return Recording(read[0], clients)
    except (AttributeError, RecursionError, ValueError, zlib.error):
        return None


Part: TypeAlias = dict[str, Any]
"""What one process has counted in one minute, read back: the values of ``Minute.content``.

Its ``waits`` are ``WaitTimes``, and its ``recordings`` bytes for ``recording_in``.
"""

_NUMBERS = (int,) * len(NONE)
_QUEUE = {"name": str, "waiting": int}
_LEARNED = {"host": str, **_QUEUE, "limit": float, "remaining": float, "under_way": int, "paused_for": int}
_VALUES = {
    "process": str,
    "started": int,
    "rules": {str: _NUMBERS},
    "seconds": [(int, *_NUMBERS)],
    "waits": (int, (int,) * len(WaitTimes().parts)),
    "keys": [(str, str, int, int)],
    "quotas": {str: [str]},
    "penalties": [str],
    "outbound": [dict],
}
"""What readers rely on."""


def part_of(content: bytes, minute: int) -> Part | None:
    """The part in these bytes; ``None`` unless it belongs to that minute, and holds all that readers rely on.

    Of the rows of queues and servers, those that are not right are left out.
    """
    head, _, recordings = content.partition(b"\n")
    try:
        values = json.loads(head)
        if not _fits(values, _VALUES) or values.get("format") != FORMAT or values.get("minute") != minute:
            return None
        for _, bucket, _, _ in values["keys"]:
            key_in(bucket)
    except (RecursionError, ValueError):
        return None
    shapes = {len(shape): shape for shape in (_QUEUE, _LEARNED)}
    values["outbound"] = [row for row in values["outbound"] if _fits(row, shapes.get(len(row), int))]
    total_ns, parts = values["waits"]
    return {**values, "waits": WaitTimes(parts, total_ns), "recordings": recordings}


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value of JSON has a shape: a list of any length or of these, a mapping of any or of these names."""
    if isinstance(shape, dict) and str in shape:
        return isinstance(value, dict) and _fits([*value], [str]) and _fits([*value.values()], [shape[str]])
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_fits(value.get(name), each) for name, each in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(each, shape[0]) for each in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(_fits, value, shape))
    if shape is int:
        return type(value) is int and 0 <= value < 2**53  # what JavaScript knows exactly
    if shape is float:
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    if shape is str:
        return isinstance(value, str) and not _HALF.search(value)
    return isinstance(value, shape)
