"""Summaries: the counts of all processes on a store in the last hour, added up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..buckets import key_in
from ..counts import MINUTES, NONE, Numbers, Part, WaitTimes, added, document_of, part_of, publish_in_process
from ..stores import Store
from ..stores.documents import documents
from ..stores.shared_time import shared_time

RECENT_MINUTES = 5
"""The minutes whose waits for the store are summed up."""

_FRESH = 2
"""The newest minutes, which are read every time; of the others, one is read each time."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """The counts of a rule in the last hour, in requests.

    ``shadowed`` would have been refused without ``shadow``. ``degraded`` were decided without the store, and are among
    the others. ``failed`` are failures of a function of the program. ``quotas`` are the quotas of the programs, as
    text, and empty if they come from a function. ``minutes`` are the counts of each of the 60 minutes, the current one
    last. ``has_penalty`` says whether the rule has a ``Penalty``: only such a rule checks for blocks.
    """

    name: str
    quotas: str
    admitted: int
    refused: int
    shadowed: int
    degraded: int
    failed: int
    minutes: tuple[Numbers, ...]
    has_penalty: bool = False


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """A key of a rule, and about how many requests it sent in the last hour and how many of these were refused.

    ``key`` is ``None`` if the store holds only a hash of it; ``bucket`` identifies it in any case.
    """

    rule: str
    bucket: str
    key: str | None
    requests: int
    refused: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The callers of one process that wait for slots of a limiter."""

    process: str
    name: str
    waiting: int


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """What an ``AdaptiveTransport`` of one process has learned of a bucket of a server; times are in seconds."""

    process: str
    host: str
    name: str
    limit: float | None
    remaining: float | None
    under_way: int
    waiting: int
    paused_for: float


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """A process that has published in the last hour: its name, and the Unix times of its start and latest minute."""

    name: str
    started: float
    latest: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All processes on a store, added up. ``now`` is the Unix time; ``waits`` are those of the last five minutes.

    ``seconds`` are the counts of requests in each second of the last two minutes, by Unix time: each counts once.
    """

    now: float
    rules: tuple[RuleSummary, ...]
    keys: tuple[KeyCounts, ...]
    waits: WaitTimes
    seconds: Mapping[int, Numbers]
    queues: tuple[QueueRow, ...]
    learned: tuple[LearnedRow, ...]
    processes: tuple[ProcessSummary, ...]


class Summaries:
    """Reads summaries of one store repeatedly; each one after the first costs three documents.

    Raises ``ConfigurationError`` for a store without documents.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents = documents(store)
        self._time = shared_time(store)
        self._minutes: dict[int, dict[str, Part]] = {}
        self._reread = 0

    async def read(self) -> Summary:
        """The summary of the hour up to now. Raises ``StoreError``."""
        await publish_in_process(self._store)
        await self._time.look()
        now = self._time.now_us() / 1e6
        latest = int(now) // 60
        wanted = range(latest - MINUTES + 1, latest + 1)
        self._reread = (self._reread + 1) % MINUTES
        again = {*wanted[-_FRESH:], wanted[self._reread]}
        stale = [minute for minute in wanted if minute in again or minute not in self._minutes]
        for minute, parts in zip(stale, await asyncio.gather(*map(self._read, stale))):
            self._minutes[minute] = parts
        self._minutes = {minute: self._minutes.get(minute, {}) for minute in wanted}
        return _summed(now, self._minutes)

    def parts(self) -> Iterator[tuple[int, Part]]:
        """The parts that were read last, each with its minute since the epoch."""
        for minute, parts in self._minutes.items():
            for part in parts.values():
                yield minute, part

    async def _read(self, minute: int) -> dict[str, Part]:
        before = self._minutes.get(minute, {})
        parts: dict[str, Part] = {}
        for process, content in (await self._documents.read_parts(document_of(minute))).items():
            earlier = before.get(process)
            part = earlier if earlier is not None and earlier.content == content else part_of(content, minute)
            if part is not None:
                parts[process] = part
        return parts


async def summary(store: Store) -> Summary:
    """The counts of all processes on a store in the last hour. Raises ``StoreError``, ``ConfigurationError``."""
    return await Summaries(store).read()


def _summed(now: float, minutes: Mapping[int, Mapping[str, Part]]) -> Summary:
    waits = WaitTimes()
    for parts in list(minutes.values())[-RECENT_MINUTES:]:
        for part in parts.values():
            waits.add_all(part.waits)
    newest = {process: part.values for parts in minutes.values() for process, part in parts.items()}
    fresh = [values for values in newest.values() if now - values["minute"] * 60 < 60 * _FRESH]
    return Summary(
        now=now,
        rules=tuple(_rules(minutes, newest.values())),
        keys=tuple(_keys(minutes)),
        waits=waits,
        seconds=_seconds(minutes, int(now)),
        queues=tuple([QueueRow(v["process"], **row) for v in fresh for row in v["outbound"] if "host" not in row]),
        learned=tuple([LearnedRow(v["process"], **row) for v in fresh for row in v["outbound"] if "host" in row]),
        processes=tuple(
            [ProcessSummary(v["process"], v["started"], v["minute"] * 60.0) for _, v in sorted(newest.items())]
        ),
    )


def _rules(minutes: Mapping[int, Mapping[str, Part]], newest: Iterable[Mapping[str, Any]]) -> Iterator[RuleSummary]:
    by_name: dict[str, list[Numbers]] = {}
    quotas: dict[str, list[str]] = {}
    penalties: set[str] = set()
    for values in newest:
        quotas.update(values["quotas"])
        penalties.update(values.get("penalties", ()))
    for place, parts in enumerate(minutes.values()):
        for part in parts.values():
            for name, numbers in part.values["rules"].items():
                row = by_name.setdefault(name, [NONE] * len(minutes))
                row[place] = added(row[place], numbers)
    for name in sorted({*by_name, *quotas, *penalties}):
        row = by_name.get(name, [NONE] * len(minutes))
        admitted, refused, shadowed, degraded, failed = map(sum, zip(*row))
        text = "; ".join(quotas.get(name, []))
        yield RuleSummary(name, text, admitted, refused, shadowed, degraded, failed, tuple(row), name in penalties)


def _keys(minutes: Mapping[int, Mapping[str, Part]]) -> Iterator[KeyCounts]:
    """The keys with the most refusals, and then those with the most requests, come first."""
    requests: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    for parts in minutes.values():
        for part in parts.values():
            for name, bucket, sent, refusals in part.values["keys"]:
                requests[name, bucket] += sent
                refused[name, bucket] += refusals
    for name, bucket in sorted(requests, key=lambda key: (-refused[key], -requests[key])):
        yield KeyCounts(name, bucket, key_in(bucket), requests[name, bucket], refused[name, bucket])


def _seconds(minutes: Mapping[int, Mapping[str, Part]], now: int) -> dict[int, Numbers]:
    seconds = dict.fromkeys(range(now - 120, now + 1), NONE)
    for minute, parts in list(minutes.items())[-3:]:
        for part in parts.values():
            for second, *numbers in part.values["seconds"]:
                at = minute * 60 + second
                if at in seconds:
                    seconds[at] = added(seconds[at], numbers)
    return seconds
