"""Summaries: the counts of all processes on a store in the last hour, added up; and what another limit would do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..algorithms.take import State, decide, most_at_once, unused
from ..buckets import key_in
from ..clock import SystemClock
from ..counts import HOURS, MINUTES, NONE, Numbers, Part, Recording, WaitTimes, added, counts_of, parts_of, recording_in
from ..quotas import SECOND_US, InFlight, Quota
from ..stores import Store, store_of_limits

# The minutes whose waits for the store are summed up.
RECENT_MINUTES = 5

# The newest minutes and hours, which are read every time; of the others, one is read each time.
_FRESH = 2

# What processes have counted, by minute or hour since the epoch, and by process.
Spans = Mapping[int, Mapping[str, Part]]


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """The counts of a rule in the last hour, in requests.

    ``shadowed`` would have been refused without ``shadow``. ``degraded`` were decided without the store, and are among
    the others. ``failed`` are failures of a function of the program. ``quotas`` are the quotas of the programs, as
    text, and empty if they come from a function. ``minutes`` are the counts of each of the 60 minutes, the current one
    last, and ``hours`` those of the 24 hours. ``has_penalty`` says whether the rule has a ``Penalty``: only such a rule
    checks for blocks. ``held`` are the requests in flight that hold a place now.
    """

    name: str
    quotas: str
    admitted: int
    refused: int
    shadowed: int
    degraded: int
    failed: int
    minutes: tuple[Numbers, ...]
    hours: tuple[Numbers, ...]
    has_penalty: bool = False
    held: int = 0


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """A key of a rule, and about how many requests it sent in the last hour and how many of these were refused.

    ``key`` is ``None`` if the store holds only a hash of it; ``bucket`` is one of its buckets. ``since`` is the Unix
    time of the first minute of the hour in which it was refused, or ``None``.
    """

    rule: str
    bucket: str
    key: str | None
    requests: int
    refused: int
    since: float | None


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

    A request counts once, however many rules it has, in ``seconds``, those of the last two minutes by Unix time, in
    ``minutes`` and in ``hours``.
    """

    now: float
    rules: tuple[RuleSummary, ...]
    keys: tuple[KeyCounts, ...]
    waits: WaitTimes
    seconds: Mapping[int, Numbers]
    minutes: tuple[Numbers, ...]
    hours: tuple[Numbers, ...]
    queues: tuple[QueueRow, ...]
    learned: tuple[LearnedRow, ...]
    processes: tuple[ProcessSummary, ...]


class Summaries:
    """Reads summaries of one store, or its URL, repeatedly; each one after the first costs six documents."""

    def __init__(self, store: Store | str) -> None:
        self._store = store = store_of_limits(store, "Summaries(store)")
        self._documents = store.documents
        self._clock = store.clock or SystemClock()
        self._minutes: dict[int, dict[str, Part]] = {}
        self._hours: dict[int, dict[str, Part]] = {}
        self._reread = 0

    async def read(self) -> Summary:
        """The summary of the hour up to now. Raises ``StoreError``."""
        counts_of(self._store).write_here()
        now = self._clock.now_us() / 1e6
        self._reread += 1
        self._minutes = await self._renewed(self._minutes, int(now) // 60, MINUTES)
        self._hours = await self._renewed(self._hours, int(now) // 3600, HOURS)
        return _summed(now, self._minutes, self._hours)

    async def _renewed(self, known: dict[int, dict[str, Part]], latest: int, count: int) -> dict[int, dict[str, Part]]:
        wanted = range(latest - count + 1, latest + 1)
        again = {*wanted[-_FRESH:], wanted[self._reread % count]}
        stale = [number for number in wanted if number in again or number not in known]
        read = {each: await parts_of(self._documents, each) for each in stale}
        return {number: read.get(number, known.get(number, {})) for number in wanted}

    def recordings(self, name: str) -> list[tuple[int, Recording]]:
        """What was recorded of a rule in the minutes that were read last, each with its minute since the epoch."""
        parts = [(minute, part) for minute, parts in self._minutes.items() for part in parts.values()]
        found = [(minute, recording_in(part["recordings"], name)) for minute, part in parts]
        return [(minute, recording) for minute, recording in found if recording is not None]


async def summary(store: Store | str) -> Summary:
    """The last hour's counts of all processes on a store, or its URL. Raises ``StoreError``, ``ConfigurationError``."""
    return await Summaries(store).read()


def _summed(now: float, minutes: Spans, hours: Spans) -> Summary:
    seconds = dict.fromkeys(range(int(now) - 120, int(now) + 1), NONE)
    keys: dict[tuple[str, str], KeyCounts] = {}
    newest, waits = dict[str, dict[str, Any]](), WaitTimes()
    for place, (minute, parts) in enumerate(minutes.items()):
        for process, values in parts.items():
            newest[process] = values
            for second, *counts in values["seconds"]:
                if minute * 60 + second in seconds:
                    seconds[minute * 60 + second] = added(seconds[minute * 60 + second], counts)
            for name, bucket, sent, refused in values["keys"]:  # the quotas of a rule have a bucket of a key each
                whose = name, bucket[bucket.index("{") :]
                old = keys.get(whose) or KeyCounts(name, bucket, key_in(bucket), 0, 0, None)
                since = old.since or (minute * 60.0 if refused else None)
                keys[whose] = replace(old, requests=old.requests + sent, refused=old.refused + refused, since=since)
            if place >= len(minutes) - RECENT_MINUTES:
                waits.add_all(values["waits"])
    latest = sorted(newest.items())
    fresh = [values for values in newest.values() if now - values["minute"] * 60 < 60 * _FRESH]
    by_minute, by_hour = _rows(minutes), _rows(hours)
    for name in {*by_minute, None}:  # the current hour has not been written
        by_hour[name][-1] = tuple(map(sum, zip(*by_minute[name][-1 - int(now) // 60 % 60 :])))
    return Summary(
        now=now,
        rules=tuple(_rules(by_minute, by_hour, newest.values(), fresh)),
        keys=tuple(sorted(keys.values(), key=lambda key: (-key.refused, -key.requests))),
        waits=waits,
        seconds=seconds,
        minutes=tuple(by_minute[None]),
        hours=tuple(by_hour[None]),
        queues=tuple([QueueRow(values["process"], *row) for values in fresh for row in values["queues"]]),
        learned=tuple([LearnedRow(values["process"], *row) for values in fresh for row in values["learned"]]),
        processes=tuple([ProcessSummary(name, one["started"], one["minute"] * 60.0) for name, one in latest]),
    )


# The counts in each minute or hour, by rule; under ``None``, those of requests.
Rows = defaultdict[str | None, list[Numbers]]


def _rows(spans: Spans) -> Rows:
    rows: Rows = defaultdict(lambda: [NONE] * len(spans))
    for place, parts in enumerate(spans.values()):
        for values in parts.values():
            for name, numbers in [*values["rules"].items(), *[(None, numbers) for _, *numbers in values["seconds"]]]:
                rows[name][place] = added(rows[name][place], numbers)
    return rows


def _rules(
    minutes: Rows, hours: Rows, newest: Iterable[Mapping[str, Any]], fresh: Sequence[Mapping[str, Any]]
) -> Iterator[RuleSummary]:
    quotas: dict[str, list[str]] = {}
    penalties: set[str] = set()
    for values in newest:
        quotas.update(values["quotas"])
        penalties.update(values["penalties"])
    for name in sorted({name for name in minutes if name is not None} | {*quotas, *penalties}):
        admitted, refused, shadowed, degraded, failed = map(sum, zip(*minutes[name]))
        text, rows = "; ".join(quotas.get(name, [])), (tuple(minutes[name]), tuple(hours[name]))
        held = sum([values["held"].get(name, 0) for values in fresh])
        yield RuleSummary(name, text, admitted, refused, shadowed, degraded, failed, *rows, name in penalties, held)


# What another limit would have refused

# The most seconds with requests that are replayed, over all clients.
MOST_CELLS = 20_000

# The requests of one second are assumed to come in this many steps.
STEPS = 4

# How many requests came in each second since the epoch.
Seconds = Counter[int]


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
    """What these quotas would have refused of the recordings, each of which comes with its minute since the epoch.

    How long requests took is not recorded, so those in flight are not limited.
    """
    rates = [quota for quota in quotas if not isinstance(quota, InFlight)]
    clients, below = _joined(list(recordings) if rates else [])
    refused = [_refused_at(seconds, rates) for seconds in clients.values()]
    requests = sum(sum(seconds.values()) for seconds in clients.values())
    return Estimate(len(clients), requests, sum(each > 0 for each in refused), sum(refused), below / Recording().below)


class Units(NamedTuple):
    """A charge."""

    quota: Quota
    cost: float


def _refused_at(seconds: Seconds, quotas: Sequence[Quota]) -> int:
    """How many of the requests of one client, so many at each second since the epoch, the quotas would have refused."""
    states, refused = list[State](), 0
    for second, count in sorted(seconds.items()):
        steps = min(count, STEPS)
        for step in range(steps):
            sent = count // steps + (step < count % steps)
            now = (second + step / steps) * SECOND_US
            states = states or [unused(quota, now) for quota in quotas]
            granted = most_at_once([Units(quota, sent) for quota in quotas], states, now)
            _, after = decide([Units(quota, granted) for quota in quotas], states, now, 0.0)
            states = after or states
            refused += sent - int(granted) if after else sent
    return refused


def _joined(recordings: Sequence[tuple[int, Recording]]) -> tuple[dict[int, Seconds], int]:
    """The requests of each client that all recordings are sure to contain, and the bound of their checksums."""
    below = min([Recording().below, *[recording.below for _, recording in recordings]])
    while True:
        clients: dict[int, Seconds] = {}
        for minute, recording in recordings:
            for (client, second), count in recording.cells.items():
                if client < below:
                    clients.setdefault(client, Counter())[minute * 60 + second] += count
        if below == 1 or sum(map(len, clients.values())) <= MOST_CELLS:
            return clients, below
        below >>= 1
