"""What one process has counted in one minute: how it is written into the documents of the store, and read back.

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
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from zlib import crc32

from ..buckets import key_in
from ..stores.documents import MAX_BYTES
from .rule_counts import ADMITTED, NONE, REFUSED, SHADOWED, Numbers, RuleCounts, WaitTimes

FORMAT = 2
"""The version of what is written; a reader leaves out what has another one."""

MINUTES = 60
"""The number of minutes that can be read back."""

ALL = 2**32
"""A bound above all checksums."""

MOST_CELLS = 4096
"""The most seconds with requests that are recorded in a minute, of all clients of all rules."""

FEWEST_CELLS = 64
"""The number of these that are recorded for each rule in any case."""

FEW = 256
"""Up to this many cells of recordings are written every second; more than that only when the minute is over."""

_MOST_KEYS, _LEFT_KEYS = 512, 256
_PUBLISHED_KEYS, _FEWEST_PUBLISHED, _MOST_PUBLISHED = 200, 2, 20

_HALF = re.compile(r"[\ud800-\udfff]")
"""Half a character, which is no text."""

Row: TypeAlias = dict[str, Any]
"""The published values of one queue, or of one bucket of a server."""


def document_of(minute: int) -> str:
    """The name of the document of a minute since the epoch."""
    return f"counts:{minute}"


def added(numbers: Iterable[int], more: Iterable[int]) -> Numbers:
    """The sums of two rows of counts."""
    return tuple([one + other for one, other in zip(numbers, more)])


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
            checksum = crc32(bucket.encode())
            if checksum < self.below:
                seconds = self.clients.setdefault(checksum, {})
                seconds[second] = seconds.get(second, 0) + count
        while self.below > 1 and self.cells > most:
            self.below >>= 1
            self.clients = {client: seconds for client, seconds in self.clients.items() if client < self.below}


@dataclass(slots=True)
class RuleMinute:
    """The counts of one rule in this minute; requests and refusals by bucket are kept only for buckets with many."""

    numbers: Numbers = NONE
    requests: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    recording: Recording = field(default_factory=Recording)


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
        requests = _emptied(counts.requests, numbers[ADMITTED] + numbers[REFUSED] + numbers[SHADOWED])
        rule.recording.add(second, requests, self._most_cells())
        for counter, more in (
            (rule.requests, requests),
            (rule.refusals, _emptied(counts.refusals, numbers[REFUSED] + numbers[SHADOWED])),
        ):
            counter.update(more)
            if len(counter) > _MOST_KEYS:  # the smallest are forgotten
                for bucket, _ in counter.most_common()[_LEFT_KEYS:]:
                    del counter[bucket]

    def content(self, values: Mapping[str, Any]) -> bytes:
        """This minute as the part of a document, with other ``values``: JSON, and the recordings after a line break.

        All recordings are written once the minute is over or if they are small, otherwise none.
        """
        most = min(_MOST_PUBLISHED, max(_FEWEST_PUBLISHED, _PUBLISHED_KEYS // max(len(self.rules), 1)))
        head = {
            "format": FORMAT,
            **values,
            "minute": self.number,
            "rules": {name: rule.numbers for name, rule in self.rules.items() if any(rule.numbers)},
            "seconds": [[second, *numbers] for second, numbers in self.seconds.items()],
            "waits": [self.waits.total_ns, self.waits.parts],
            "keys": [row for name, rule in self.rules.items() for row in _top_keys(name, rule, most)],
        }
        recordings = {name: rule.recording for name, rule in self.rules.items()}
        is_written = self.is_over or sum([each.cells for each in recordings.values()]) <= FEW
        return _json(head) + b"\n" + encoded(recordings if is_written else {})

    def _most_cells(self) -> int:
        """The most cells of each rule's recording."""
        return max(FEWEST_CELLS, MOST_CELLS // max(len(self.rules), 1))


def _json(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()


def _emptied(latest: deque[str], count: int) -> Counter[str]:
    """Empty the latest buckets; return their counts, scaled up to ``count`` if there were more than are remembered."""
    buckets = [latest.popleft() for _ in range(len(latest))]  # other threads may append meanwhile
    scale = max(1.0, count / len(buckets)) if buckets else 1.0
    return Counter({bucket: round(each * scale) for bucket, each in Counter(buckets).items()})


def _top_keys(name: str, rule: RuleMinute, most: int) -> list[list[Any]]:
    """The buckets with the most refusals and those with the most requests: name, bucket, requests, refusals."""
    both = dict.fromkeys([bucket for each in (rule.refusals, rule.requests) for bucket, _ in each.most_common(most)])
    return [[name, bucket, rule.requests[bucket], rule.refusals[bucket]] for bucket in both]


def encoded(recordings: Mapping[str, Recording]) -> bytes:
    """The recordings of all rules, by name, as bytes."""
    return zlib.compress(_json({name: [each.below, each.clients] for name, each in recordings.items()}), 1)


def recording_in(content: bytes, name: str) -> Recording | None:
    """The recording of one rule in such bytes; ``None`` if there is none, or something else."""
    try:
        read = json.loads(zlib.decompressobj().decompress(content, MAX_BYTES)).get(name)
        if not _fits(read, (int, {str: {str: int}})) or not 0 < read[0] <= ALL:
            return None
        below, clients = read
        return Recording(
            below, {int(client): {int(at): n for at, n in cells.items()} for client, cells in clients.items()}
        )
    except (AttributeError, RecursionError, ValueError, zlib.error):
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """What one process has counted in one minute, read back: see ``Minute.content`` for its values."""

    content: bytes
    values: dict[str, Any]

    @property
    def waits(self) -> WaitTimes:
        """How long requests waited for the store."""
        total_ns, parts = self.values["waits"]
        return WaitTimes(parts, total_ns)

    def recording(self, name: str) -> Recording | None:
        """The recording of a rule, if there is one."""
        return recording_in(self.content[self.content.index(b"\n") + 1 :], name)


_NUMBERS = (int,) * len(NONE)
_QUEUE = {"name": str, "waiting": int}
_LEARNED = {"host": str, **_QUEUE, "limit": float, "remaining": float, "under_way": int, "paused_for": int}
_ROWS: tuple[Row, ...] = (_QUEUE, _LEARNED)
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
    try:
        values = json.loads(content[: content.index(b"\n")])
        if not _fits(values, _VALUES) or values.get("format") != FORMAT or values.get("minute") != minute:
            return None
        for _, bucket, _, _ in values["keys"]:
            key_in(bucket)
    except (RecursionError, ValueError):
        return None
    values["outbound"] = [
        row for row in values["outbound"] if any(len(row) == len(each) and _fits(row, each) for each in _ROWS)
    ]
    return Part(content, values)


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
