"""Summaries: the counts of all processes on a store in the last hour, added up; and what another limit would do."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..algorithms import State, decide, most_at_once, unused
from ..buckets import key_in
from ..counts import ALL, MINUTES, NONE, Numbers, Part, Recording, WaitTimes, added, counts_of, document_of, part_of
from ..decision import Charge
from ..quotas import SECOND_US, Quota
from ..stores import Store
from ..stores.documents import documents, shared_time

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
        counts_of(self._store).write_here()
        await self._time.look()
        now = self._time.now_us() / 1e6
        wanted = range(int(now) // 60 - MINUTES + 1, int(now) // 60 + 1)
        self._reread = (self._reread + 1) % MINUTES
        again = {*wanted[-_FRESH:], wanted[self._reread]}
        stale = [minute for minute in wanted if minute in again or minute not in self._minutes]
        read = dict(zip(stale, await asyncio.gather(*map(self._read, stale))))
        self._minutes = {minute: read.get(minute, self._minutes.get(minute, {})) for minute in wanted}
        return _summed(now, self._minutes)

    def parts(self) -> Iterator[tuple[int, Part]]:
        """The parts that were read last, each with its minute since the epoch."""
        return ((minute, part) for minute, parts in self._minutes.items() for part in parts.values())

    async def _read(self, minute: int) -> dict[str, Part]:
        contents = await self._documents.read_parts(document_of(minute))
        return {process: part for process, content in contents.items() if (part := part_of(content, minute))}


async def summary(store: Store) -> Summary:
    """The counts of all processes on a store in the last hour. Raises ``StoreError``, ``ConfigurationError``."""
    return await Summaries(store).read()


def _summed(now: float, minutes: Mapping[int, Mapping[str, Part]]) -> Summary:
    rows: defaultdict[str, list[Numbers]] = defaultdict(lambda: [NONE] * len(minutes))
    seconds = dict.fromkeys(range(int(now) - 120, int(now) + 1), NONE)
    requests: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    newest, waits = dict[str, dict[str, Any]](), WaitTimes()
    for place, (minute, parts) in enumerate(minutes.items()):
        for process, values in parts.items():
            newest[process] = values
            for name, numbers in values["rules"].items():
                rows[name][place] = added(rows[name][place], numbers)
            for second, *counts in values["seconds"]:
                if minute * 60 + second in seconds:
                    seconds[minute * 60 + second] = added(seconds[minute * 60 + second], counts)
            for name, bucket, sent, refusals in values["keys"]:
                requests[name, bucket] += sent
                refused[name, bucket] += refusals
            if place >= len(minutes) - RECENT_MINUTES:
                waits.add_all(values["waits"])
    fresh = [values for values in newest.values() if now - values["minute"] * 60 < 60 * _FRESH]
    latest = [newest[process] for process in sorted(newest)]
    worst = sorted(requests, key=lambda key: (-refused[key], -requests[key]))
    return Summary(
        now=now,
        rules=tuple(_rules(rows, newest.values())),
        keys=tuple([KeyCounts(*key, key_in(key[1]), requests[key], refused[key]) for key in worst]),
        waits=waits,
        seconds=seconds,
        queues=tuple([QueueRow(values["process"], *row) for values in fresh for row in values["queues"]]),
        learned=tuple([LearnedRow(values["process"], *row) for values in fresh for row in values["learned"]]),
        processes=tuple([ProcessSummary(each["process"], each["started"], each["minute"] * 60.0) for each in latest]),
    )


def _rules(rows: defaultdict[str, list[Numbers]], newest: Iterable[Mapping[str, Any]]) -> Iterator[RuleSummary]:
    quotas: dict[str, list[str]] = {}
    penalties: set[str] = set()
    for values in newest:
        quotas.update(values["quotas"])
        penalties.update(values["penalties"])
    for name in sorted({*rows, *quotas, *penalties}):
        admitted, refused, shadowed, degraded, failed = map(sum, zip(*rows[name]))
        text, minutes = "; ".join(quotas.get(name, [])), tuple(rows[name])
        yield RuleSummary(name, text, admitted, refused, shadowed, degraded, failed, minutes, name in penalties)


# What another limit would have refused

MOST_CELLS = 20_000
"""The most seconds with requests that are replayed, over all clients."""

_STEPS = 4
"""The requests of one second are assumed to come in this many steps."""

Seconds = Counter[int]
"""How many requests came in each second since the epoch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The effect that a quota would have had on the recorded ``clients`` and their ``requests``, each at a cost of 1.

    ``share`` is the part of all clients that was recorded: 1.0 for all of them.
    """

    clients: int
    requests: int
    refused_clients: int
    refused: int
    share: float


def estimate(recordings: Iterable[tuple[int, Recording]], quotas: Sequence[Quota]) -> Estimate:
    """What these quotas would have refused of the recordings, each of which comes with its minute since the epoch."""
    clients, below = _joined(list(recordings))
    refused = [_refused(seconds, quotas) for seconds in clients.values()]
    requests = sum(sum(seconds.values()) for seconds in clients.values())
    return Estimate(len(clients), requests, sum(each > 0 for each in refused), sum(refused), below / ALL)


def _joined(recordings: Sequence[tuple[int, Recording]]) -> tuple[dict[int, Seconds], int]:
    """The requests of each client that all recordings are sure to contain, and the bound of their checksums."""
    below = min([ALL, *[recording.below for _, recording in recordings]])
    while True:
        clients: dict[int, Seconds] = {}
        for minute, recording in recordings:
            for (client, second), count in recording.cells.items():
                if client < below:
                    clients.setdefault(client, Counter())[minute * 60 + second] += count
        if below == 1 or sum(map(len, clients.values())) <= MOST_CELLS:
            return clients, below
        below >>= 1


def _refused(seconds: Seconds, quotas: Sequence[Quota]) -> int:
    """How many of these requests of one client the quotas would have refused."""
    states, refused = list[State](), 0
    for second, count in sorted(seconds.items()):
        steps = min(count, _STEPS)
        for step in range(steps):
            sent = count // steps + (step < count % steps)
            now, charges = (second + step / steps) * SECOND_US, [Charge(quota, "key", sent) for quota in quotas]
            states = states or [unused(quota, now) for quota in quotas]
            granted = most_at_once(charges, states, now)
            _, after = decide([Charge(quota, "key", granted) for quota in quotas], states, now, 0.0)
            states = after or states
            refused += sent - int(granted) if after else sent
    return refused
