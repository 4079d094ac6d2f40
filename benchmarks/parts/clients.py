"""Requests straight into the app from 100 to 1,000,000 clients: what a new client costs, and what a known one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..reporting.results import NAN, Column, Part, Round, Row, best, mid, unexpected
from ..subject import Quota
from .inprocess import BARE_US

MEASURED = ("bare", "ours", "ours_no_headers", "plain", "asgi_ratelimit_peer", "limits", "pyrate_limiter")
"""The peers of this part, all on the same bare app."""
QUOTA = Quota(100, "hour")
"""A bucket is full again 36 s after one request, so that most clients are still stored when they come again."""
AT_ONCE = 64
CHUNKS, SHORTEST, LONGEST = 20, 100, 5000
"""Chunks of a pass if possible, and the least and the most clients of one."""
WARM_CLIENTS = 36
"""The first clients of each pass: they warm the app up, and are not measured; 64 others are left of 100."""
TIMES = 5
"""A chunk of fewer clients than ``SHORTEST`` comes again so many times, because one time is too short to measure."""
SLOW_US = 30.0
"""A peer that takes more CPU than this on top of the bare app is slow."""
SAMPLED = {100: (1, 1), 10_000: (5, 5), 100_000: (5, 19), 1_000_000: (15, 15)}
"""Plain EVALSHA and slow peers visit one chunk in so many; odd, so that some are measured and some monitored."""
RESTARTED = 10_000
"""From this many clients on, each pass has a new process, because old stores may go on to use CPU."""
WEIGHED = 100_000
"""From this many clients on, the memory of the process counts."""
ONCE = 1_000_000
"""From this many clients on, none comes again, and slow peers are left out."""

LONG_PAUSE_US = 5000.0
"""A pause that is this much longer than the bare app's is measured again, because the machine makes some, too."""
REPEATS = 2
"""How often it is measured again, at most."""

Phase: TypeAlias = Literal["new", "again"]
PHASES: tuple[Phase, ...] = ("new", "again")

COLUMNS = {
    **{f"cpu_{phase}": Column(f"CPU µs more, {phase}", 1, "less") for phase in PHASES},
    **{f"scaled_{phase}": Column(f"{phase}, scaled to {BARE_US:.0f} µs of bare", 1) for phase in PHASES},
    **{f"throughput_{phase}": Column(f"throughput, {phase}, times plain", 2, "more") for phase in PHASES},
    "bytes": Column("process memory, bytes a client", 0, "less", resolution=5),
    "pause": Column("longest pause, ms more", 1, "less", resolution=1),
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some neighbouring clients in one phase of a pass; ``number`` is that of the pass."""

    phase: Phase
    position: int
    number: int
    first: int
    clients: int

    @property
    def times(self) -> int:
        """How often its clients send a request."""
        return TIMES if self.phase == "again" and self.clients < SHORTEST else 1

    @property
    def monitored(self) -> bool:
        """Whether pauses are measured, and not CPU: every other chunk, and the other ones in the next pass."""
        return (self.position + self.number) % 2 == 1


@dataclass(slots=True)
class Subject:
    """The rounds of one subject at one number of clients; times in microseconds."""

    runner: Runner
    slow: bool = False
    error: str = ""
    rounds: dict[Chunk, Round] = field(default_factory=dict)
    memory: float = NAN
    """Bytes of the process before the first pass, and after it how much it grew for each client."""

    @property
    def name(self) -> str:
        return self.runner.subject.name

    def visits(self, chunk: Chunk, clients: int) -> bool:
        """Whether the chunk is one of those that this subject visits."""
        of_plain, of_slow = SAMPLED[clients]
        every = of_plain if self.runner.subject.peer.name == "plain" else of_slow if self.slow else 1
        return chunk.position % every == 0

    def cpu(self, phase: Phase) -> float:
        """The mean over positions, each of which counts with the best of its passes."""
        figures = [best(each) for each in self._by_position("cpu", phase).values()]
        return sum(figures) / len(figures) if figures else NAN

    def mean_time(self) -> float:
        """The time of a request, over measured and monitored chunks."""
        return sum(each["time"] for each in self.rounds.values()) / max(len(self.rounds), 1)

    def pause(self) -> float:
        """The longest at any position, each of which counts with the best of its passes."""
        figures = [min(each) for phase in PHASES for each in self._by_position("pause", phase).values()]
        return max(figures, default=NAN)

    def _by_position(self, figure: str, phase: Phase) -> dict[int, list[float]]:
        figures: dict[int, list[float]] = defaultdict(list)
        for chunk, measured in self.rounds.items():
            if chunk.phase == phase and figure in measured:
                figures[chunk.position].append(measured[figure])
        return figures


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    slow: set[str] = set()
    parts = []
    first = 0
    for clients, passes in plan.passes.items():
        subjects = [
            Subject(runner, runner.subject.name in slow)
            for runner in runners
            if runner.subject.peer.name in MEASURED and _takes_part(runner, clients, slow)
        ]
        for number in range(passes):
            _pass(subjects, clients, number, first)
            first += clients
        for number in range(2 * passes, 2 * passes * (REPEATS + 1), 2 * passes):
            first = _repeat_long_pauses(subjects, clients, range(number, number + passes), first)
        parts.append(part_of(subjects, clients))
        _restart(subjects)
        slow |= {row.subject.name for row in parts[-1].rows if _is_slow(row)}
    return parts


def _takes_part(runner: Runner, clients: int, slow: set[str]) -> bool:
    return clients < ONCE or runner.subject.name not in slow


def _is_slow(row: Row) -> bool:
    """Whether it is a peer that is only sampled at more clients."""
    return row.subject.is_of_others and max(row.figure("cpu_new"), row.figure("cpu_again")) > SLOW_US


def _repeat_long_pauses(subjects: list[Subject], clients: int, passes: range, first: int) -> int:
    """Repeat the passes of those with a long pause, for their pauses only; return the next client that is new."""
    bare = next(subject for subject in subjects if subject.name == "bare")
    doubtful = [each for each in subjects if not each.error and each.pause() - bare.pause() > LONG_PAUSE_US]
    for number in passes if doubtful else ():
        _pass(doubtful, clients, number, first, pauses_only=True)
        first += clients
    return first


def _pass(subjects: list[Subject], clients: int, number: int, first: int, *, pauses_only: bool = False) -> None:
    """All clients once, and again, chunk by chunk; every subject visits a chunk before the next one begins."""
    if clients >= RESTARTED:
        _restart(subjects)
    for subject in subjects:
        _prepare(subject, clients, number, first)
    for phase in PHASES if clients < ONCE else PHASES[:1]:
        for chunk in chunks_of(clients, phase, number, first):
            start = chunk.position % len(subjects)
            for subject in subjects[start:] + subjects[:start]:
                if subject.visits(chunk, clients):
                    _visit(subject, chunk, first, pauses_only)
            if clients >= WEIGHED and not pauses_only:
                _spot_slow(subjects, clients)
        if phase == "new" and number == 0:
            for subject in subjects:
                _finish_memory(subject)


def chunks_of(clients: int, phase: Phase, number: int, first: int) -> Iterator[Chunk]:
    """The chunks of a pass over clients numbered from ``first``, without those that warm the app up."""
    length = min(max(clients // CHUNKS, SHORTEST), LONGEST)
    for position, start in enumerate(range(0, clients, length)):
        skipped = 0 if position else WARM_CLIENTS
        yield Chunk(phase, position, number, first + start + skipped, min(length, clients - start) - skipped)


def _restart(subjects: Iterable[Subject]) -> None:
    for subject in subjects:
        subject.runner.restart()


def _prepare(subject: Subject, clients: int, number: int, first: int) -> None:
    """A new app, in a process whose code is warm."""
    if subject.error:
        return
    warm = [*range(first, first + WARM_CLIENTS)] * 2
    try:
        if clients >= RESTARTED:
            subject.runner.use(QUOTA)
            subject.runner.call("visit", first=2**24 - 1000, clients=1000, at_once=AT_ONCE)
        subject.runner.use(QUOTA)
        answer = subject.runner.call("visit", first=first, clients=0, at_once=AT_ONCE, warm=warm)
        if number == 0:
            subject.memory = answer["memory"]
    except Failed as failure:
        subject.error = str(failure)


def _visit(subject: Subject, chunk: Chunk, first: int, pauses_only: bool) -> None:
    if subject.error:
        return
    warm = [*range(first, first + WARM_CLIENTS)] if chunk.clients < LONGEST - WARM_CLIENTS else []
    try:
        answer = subject.runner.call(
            "visit",
            first=chunk.first,
            clients=chunk.clients,
            at_once=AT_ONCE,
            times=chunk.times,
            warm=warm,
            monitored=chunk.monitored,
        )
    except Failed as failure:
        subject.error = str(failure)
        return
    subject.error = unexpected(answer["statuses"], ("200",))
    if chunk.monitored:
        figures = {"pause": answer["pause"] * 1e6}
    else:
        figures = {name: answer[name] / answer["requests"] * 1e6 for name in ("cpu", "wall")}
    if pauses_only and not chunk.monitored:
        return
    time = answer["wall"] / answer["requests"] * 1e6
    subject.rounds[chunk] = {**figures, "time": time, "memory": answer["memory"]}


def _spot_slow(subjects: Sequence[Subject], clients: int) -> None:
    """Sample or stop the peers that became slow with so many clients; in full, some would take many minutes."""
    bare = next(subject for subject in subjects if subject.name == "bare")
    for subject in subjects:
        became_slow = subject.cpu("new") - bare.cpu("new") > SLOW_US or subject.mean_time() > 2 * SLOW_US
        if became_slow and not subject.slow and subject.runner.subject.is_of_others:
            subject.slow = True
            if clients >= ONCE:
                visited = sum(chunk.clients for chunk in subject.rounds)
                subject.error = f"stopped after {visited:,} clients: over {SLOW_US:.0f} µs more"
                subject.runner.restart()


def _finish_memory(subject: Subject) -> None:
    """What the process grew by for each client of the first pass."""
    visited = sum(chunk.clients for chunk in subject.rounds)
    latest = max((each["memory"] for each in subject.rounds.values()), default=NAN)
    subject.memory = (latest - subject.memory) / visited if visited else NAN


def part_of(subjects: Sequence[Subject], clients: int) -> Part:
    """The table of one number of clients."""
    by_name = {subject.name: subject for subject in subjects}
    rows = [Row(each.runner.subject, _figures(each, by_name, clients), each.error) for each in subjects]
    return Part(f"clients_{clients}", f"{clients:,} clients", COLUMNS, rows, _note(subjects, clients))


def _note(subjects: Sequence[Subject], clients: int) -> str:
    slow = [subject.runner.subject.title for subject in subjects if subject.slow]
    notes = []
    if slow and clients < ONCE:
        notes.append(f"A sample of the clients only, one chunk in {SAMPLED[clients][1]}: {'; '.join(slow)}.")
    if clients >= ONCE:
        notes.append(f"Peers that take over {SLOW_US:.0f} µs more at fewer clients are left out.")
    return " ".join(notes)


def _figures(subject: Subject, subjects: dict[str, Subject], clients: int) -> dict[str, float]:
    if subject.error:
        return {}
    bare = subjects["bare"]
    if subject is bare:
        return {f"cpu_{phase}": bare.cpu(phase) for phase in PHASES}
    figures = {f"cpu_{phase}": subject.cpu(phase) - bare.cpu(phase) for phase in PHASES}
    figures |= {f"scaled_{phase}": figures[f"cpu_{phase}"] * BARE_US / bare.cpu(phase) for phase in PHASES}
    figures["pause"] = max(0.0, subject.pause() - bare.pause()) / 1000
    if clients >= WEIGHED:
        figures["bytes"] = max(0.0, subject.memory - bare.memory)
    plain = subjects.get("plain redis")
    if plain and subject.runner.redis:
        figures |= {f"throughput_{phase}": mid(_ratios(subject, plain, phase)) for phase in PHASES}
    return figures


def _ratios(subject: Subject, plain: Subject, phase: Phase) -> Iterable[float]:
    """The throughputs of the subject, divided by those of plain EVALSHA on the same chunks."""
    for chunk, measured in subject.rounds.items():
        if chunk.phase == phase and chunk in plain.rounds and "wall" in measured:
            yield plain.rounds[chunk]["wall"] / measured["wall"]
