"""What this process counts on a store, and what is written of it.

Requests add to the counts, and once a second they are written into the store, so that all processes can be summed up.
A store in memory is read in this process alone, so a decision in a new second, or a reader, has them written. For a
store on a server, the background loop does so, because an event loop of the program may end early.

The document of a minute has a part for each process, and so has that of an hour, whose parts are written once a minute.
A part of a minute holds recordings too: how many requests some clients sent in each second, so that another limit can
be tried on it. Clients are recorded whole or not at all: those whose checksum is below a bound, which is the same in
every process. A rule with too many of them lowers the bound, and forgets the others. No key is recorded, only its
checksum.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import zlib
from bisect import bisect
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import add, itemgetter, sub
from threading import Lock
from typing import Any, TypeAlias

from .background import BesideStore, run_in_place
from .buckets import key_in
from .clock import SystemClock
from .decision import Charge, Decision
from .errors import StoreError
from .leases import held_by_name
from .logs import warn_of_many
from .quota_text import RESERVED_NAMES, as_text
from .quotas import SECOND_US
from .stores import ByStore, Store
from .stores.base import Documents, living, owned
from .stores.documents import MAX_BYTES
from .waiting.waiter import outbound_sources

# A minute

# The version of what is written; a reader leaves out what has another one.
FORMAT = 3

# The number of minutes and of hours that can be read back.
MINUTES, HOURS = 60, 24

# The number of requests of a rule that are remembered until they are collected.
LATEST = 1024

# A bound above all checksums.
ALL = 2**32

# The most seconds with requests that are recorded in a minute, of all rules together.
MOST_CELLS = 4096

# Up to this many cells of recordings are written every second; more than that only when the minute is over.
FEW = 256

# The most keys that are counted in a minute, the worst ones that are left of more, and those that are written.
MOST_KEYS, LEFT_KEYS, WRITTEN_KEYS = 2048, 1024, 200

# The upper bounds of the parts of a histogram, in microseconds: from 10 of them to 8 seconds.
BOUNDS_US = tuple(unit * step for unit in (1e1, 1e2, 1e3, 1e4, 1e5, 1e6) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))

# Counts of what was admitted, refused, shadowed, degraded and failed, in this order.
Numbers: TypeAlias = tuple[int, ...]

NONE: Numbers = (0, 0, 0, 0, 0)


def added(numbers: Numbers, more: Numbers) -> Numbers:
    """The sums of two rows of counts."""
    return tuple(map(add, numbers, more))


def document_of(number: int) -> str:
    """The name of the document of a minute since the epoch, or of an hour: no number belongs to both before 5000."""
    return f"counts:{number}"


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

    def latest(self, numbers: Numbers) -> tuple[Counter[str], Counter[str]]:
        """The requests and the refusals by bucket among so many that were collected; they are forgotten then."""
        admitted, refused, shadowed, *_ = numbers
        return _emptied(self.requests, admitted + refused + shadowed), _emptied(self.refusals, refused + shadowed)


@dataclass(slots=True)
class WaitTimes:
    """A histogram of waits: how many there were in each part."""

    parts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_US) + 1))

    def add(self, wait_us: float) -> None:
        """Count one wait."""
        self.parts[bisect(BOUNDS_US, wait_us)] += 1

    def add_all(self, parts: list[int]) -> None:
        """Count the waits of another histogram."""
        self.parts = list(map(add, self.parts, parts))

    @property
    def count(self) -> int:
        """How many waits there were."""
        return sum(self.parts)

    def quantile(self, share: float) -> float:
        """The longest wait in seconds of the quickest ``share``, 0.99 for example: the upper bound of its part."""
        for bound, below in zip((*BOUNDS_US, BOUNDS_US[-1]), accumulate(self.parts)):
            if below and below >= share * self.count:
                return bound / SECOND_US
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
class Span:
    """Everything that one process has counted in a minute or an hour since the epoch. It is stored ``lasts`` seconds.

    ``seconds`` are the counts of requests, however many rules they have; in an hour, they are those of its minutes.
    Only a minute has recordings, and ``keys``: refusals and requests of rules by bucket.
    """

    number: int
    lasts: float
    rules: dict[str, Numbers] = field(default_factory=dict)
    seconds: dict[int, Numbers] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    recordings: dict[str, Recording] = field(default_factory=dict)
    waits: WaitTimes = field(default_factory=WaitTimes)
    is_over: bool = False
    # Whether it is to be written.
    has_news: bool = False

    def record(self, name: str, second: int, requests: Counter[str], refusals: Counter[str]) -> None:
        """Record the requests of a rule in one second of a minute, and its refusals among them, by bucket."""
        self.recordings.setdefault(name, Recording()).add(second, requests, MOST_CELLS // len(self.rules))
        for bucket in requests | refusals:
            before = self.keys.get((name, bucket), (0, 0))
            self.keys[name, bucket] = before[0] + refusals[bucket], before[1] + requests[bucket]
        if len(self.keys) > MOST_KEYS:
            self.keys = dict(self._worst(LEFT_KEYS))

    def _worst(self, most: int) -> list[tuple[tuple[str, str], tuple[int, int]]]:
        """The keys with the most refusals, and of equal ones those with the most requests."""
        return sorted(self.keys.items(), key=itemgetter(1), reverse=True)[:most]

    def content(self, values: Mapping[str, Any]) -> bytes:
        """This span as the part of a document, with other ``values``: JSON, and the recordings after a line break.

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


# What one process has counted in one minute or hour, read back: the values of ``Span.content``.
# Its ``outbound`` rows are ``queues``, ``learned`` and ``held``, and its ``recordings`` are bytes for ``recording_in``.
Part: TypeAlias = dict[str, Any]

_NUMBERS = (int,) * len(NONE)
# What readers rely on.
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

# The outbound rows: the values of ``QueueRow`` and ``LearnedRow`` behind the process, and places that are held.
_QUEUE, _LEARNED, _HELD = (str, int), (str, str, float, float, int, int, int), (str, int, str)


def part_of(content: bytes, number: int) -> Part | None:
    """The part in these bytes; ``None`` unless it belongs to that minute or hour, and holds all that readers rely on.

    Of the rows of queues and servers, those that are not right are left out.
    """
    head, _, recordings = content.partition(b"\n")
    try:
        part = json.loads(head)
        json.dumps(part, ensure_ascii=False).encode()  # half a character is no text
        if part["format"] != FORMAT or part["minute"] != number:
            return None
        if not all(_fits(part[name], shape) for name, shape in _VALUES.items()):
            return None
        for _, bucket, _, _ in part["keys"]:
            key_in(bucket)
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    queues = [row for row in part["outbound"] if _fits(row, _QUEUE)]
    learned = [row for row in part["outbound"] if _fits(row, _LEARNED)]
    held = {row[0]: row[1] for row in part["outbound"] if _fits(row, _HELD)}
    return {**part, "queues": queues, "learned": learned, "held": held, "recordings": recordings}


async def parts_of(documents: Documents, number: int) -> dict[str, Part]:
    """The parts of all processes of a minute or an hour. Raises ``StoreError``."""
    contents = await documents.read_parts(document_of(number))
    return {process: part for process, content in contents.items() if (part := part_of(content, number))}


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


# The counts

# The places of the counts in ``Numbers``.
ADMITTED, REFUSED, SHADOWED, DEGRADED, FAILED = range(5)

# Seconds after which a written minute, or an hour, is gone.
LASTS, HOUR_LASTS = 3900.0, 90_000.0

# The most rows of queues and servers, and the longest text in one: servers invent names of limits.
MOST_ROWS, LONGEST_TEXT = 200, 200


_MADE_IN_EACH_CALL = (
    "memory stores have been made for limiters, transports or middlewares: one that is made in each call begins anew, "
    'and limits nothing. Make it once, at the top of a module: limiter = Limiter("10/s")'
)


class Counts(BesideStore):
    """What this process has counted on one store, of each rule and of all requests, once in each middleware."""

    def __init__(self, store: Store) -> None:
        self._clock = getattr(store, "clock", None) or SystemClock()
        super().__init__(store)
        if self.in_process:
            warn_of_many("a-limiter-that-is-made-in-each-call", _MADE_IN_EACH_CALL)

    def reset(self) -> None:
        """Start afresh: in a forked child, nothing is counted yet."""
        super().reset()
        self.rules: dict[str, RuleCounts] = {}
        self._requests = RuleCounts()
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._process = {"process": name, "started": int(self._clock.now_us() // SECOND_US)}
        # From this time on, a request has to see to it that the counts are written.
        self._due_us = 0.0 if self.in_process else math.inf
        # The second of what is still to be collected.
        self._second = 0
        # The current hour and minute, and before them those that are over, and whose last write has not succeeded yet.
        self._spans = [Span(0, HOUR_LASTS), Span(0, LASTS)]
        # The waits for the store in the current minute.
        self.waits = self._spans[-1].waits
        self._outbound: list[list[Any]] = []
        self._is_writing = Lock()

    def of_rule(self, name: str) -> RuleCounts:
        """The counts of a rule; another thread may just have made them."""
        return self.rules.setdefault(name, RuleCounts())

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count the decisions of one request: each for the rules that it charges, or for those that refuse it.

        A decision that an outage refuses, and not a quota, counts as refused by all of its rules. The request counts as
        refused, or else as shadowed, or else as admitted.
        """
        outcome, is_degraded = None, False
        for decision in decisions:
            if decision.now_us >= self._due_us:
                self.write_here()
            charges: Sequence[Charge] = decision.take.charges
            degraded, result = decision.degraded, ADMITTED
            if not decision.allowed:
                charges, result = decision.refusing or charges, SHADOWED if decision.shadow else REFUSED
            names: list[str] = []
            for charge in charges:
                name = charge.name or ""
                if name in names:
                    continue
                names.append(name)
                rule = self.rules.get(name) or self.of_rule(name)
                rule.requests.append(charge.bucket)
                rule.numbers[result] += 1
                if result:
                    rule.refusals.append(charge.bucket)
                if degraded:
                    rule.numbers[DEGRADED] += 1
            if not outcome:
                outcome, is_degraded = result, is_degraded or degraded
        if outcome is not None:
            self._requests.numbers[outcome] += 1
            if is_degraded:
                self._requests.numbers[DEGRADED] += 1

    def count_failure(self, name: str) -> None:
        """Count a function of the program that has failed for a rule."""
        for counts in (self.of_rule(name), self._requests):
            counts.numbers[FAILED] += 1

    def write_here(self) -> None:
        """Write what was counted until now into a store in this process; nothing into one on a server."""
        if self._due_us != math.inf and self._is_writing.acquire(blocking=False):
            self._due_us = (self._clock.now_us() // SECOND_US + 1.0) * SECOND_US
            try:
                run_in_place(self._once())
            finally:
                self._is_writing.release()

    async def run(self) -> float:
        """Write everything new, the oldest minute first.

        Returns the seconds until the next full second, so that all processes write at the same time.
        """
        # Beside a server, what was counted since the last full second, about
        now = self._clock.now_us() / SECOND_US - (0.0 if self.in_process else 0.5)
        # Where a clock goes back, time stands still, or the minute that is over would be written anew, and lost
        now = max(now, self._second if self._second - now < 60 else 0.0)
        for second in (self._second, int(now)) if self.in_process else (int(now),):
            self._collect(*divmod(second, 60))
        self._second = int(now)
        with suppress(StoreError):  # what is unwritten is written later; the next one would wait as long for an answer
            for span in self._spans:
                if span.has_news or (span.seconds and not (self.is_running or self.in_process)):  # it is the last write
                    await self._write(span)
        return max(1 - self._clock.now_us() % SECOND_US / SECOND_US, 0.1)

    def _collect(self, number: int, second: int) -> None:
        """Add what was counted since the last call to a minute and its hour.

        Both are written once the minute is over: the minute once more, with all of its recordings.
        """
        hour, minute = self._spans[-2:]
        if number != minute.number:
            minute.is_over = minute.has_news = bool(minute.seconds)
            hour.has_news = hour.has_news or minute.has_news
            current = hour if number // 60 == hour.number else Span(number // 60, HOUR_LASTS)
            unwritten = [each for each in self._spans if each.has_news and each is not current]
            hour, minute = current, Span(number, LASTS)
            self._spans, self.waits = [*unwritten, hour, minute][-MINUTES:], minute.waits
        requests = self._requests.collect()
        if any(requests):
            for span, place in ((minute, second), (hour, number % 60)):
                span.seconds[place] = added(span.seconds.get(place, NONE), requests)
            minute.has_news = True
        for name, rule in list(self.rules.items()):
            numbers = rule.collect()
            if any(numbers):
                for span in (minute, hour):
                    span.rules[name] = added(span.rules.get(name, NONE), numbers)
                minute.record(name, second, *rule.latest(numbers))
        held = held_by_name(self._owner())
        outbound = [*_outbound_rows(), *[[name, count, "held"] for name, count in held.items()]]
        if outbound != self._outbound:
            self._outbound, minute.has_news = outbound, True

    async def _write(self, span: Span) -> None:
        quotas: defaultdict[str, list[str]] = defaultdict(list)
        penalties = []
        for name, quota in owned(self._owner()):
            if quota.name in RESERVED_NAMES:
                penalties.append(name)
            else:
                quotas[name].append(as_text(quota))
        values = {**self._process, "quotas": quotas, "penalties": penalties, "outbound": self._outbound}
        part = str(self._process["process"]), span.content(values)
        await self.documents.write_part(document_of(span.number), *part, seconds=span.lasts)
        span.has_news = False


def _outbound_rows() -> list[list[Any]]:
    """The values in the first rows of all sources, with texts that are not too long."""
    rows = islice((row for source, _ in living(outbound_sources) for row in source.outbound_rows()), MOST_ROWS)
    return [[each[:LONGEST_TEXT] if isinstance(each, str) else each for each in row.values()] for row in rows]


# The counts of this process on a store.
counts_of: ByStore[Counts] = ByStore(Counts)
