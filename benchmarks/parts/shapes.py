"""The shapes of use: what a request costs under each of them, from known clients and from new ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..apps.shapes import CHARGES, SHAPES
from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..reporting.results import NAN, Column, Part, Row, best, mid, unexpected
from ..subject import Quota
from .inprocess import BARE_US

QUOTA = Quota(300, "minute")
"""So wide that no request is refused, and so narrow that a known client's buckets are mostly still in use."""
AT_ONCE = 64
LEAST = 100
"""Requests of a round and clients of a chunk, at least."""
CHUNKS = 20
"""New clients come in so many chunks if possible, and all subjects visit one before the next begins."""
WARM = 32
"""Requests of known clients that go before each round and each chunk, and are not measured."""
WARM_UP = 0.3
"""Seconds for which requests warm a process up."""
SAMPLED = 4
"""Peers visit one chunk in so many, and every other round of known clients."""
EXTENDED = ("default+rule", "three quotas", "tier", "cost", "settle", "user key")
"""Shapes that are the single quota and something more."""

COLUMNS = {
    "known": Column("CPU µs more, known clients", 1, "less"),
    "new": Column("CPU µs more, new clients", 1, "less"),
    "growth": Column("new / known", 2),
    "ours_known": Column("ours / it, known", 2),
    "ours_new": Column("ours / it, new", 2),
    "scaled": Column(f"known, scaled to {BARE_US:.0f} µs of bare Starlette", 1),
    "over_single": Column("that more than single", 1),
    "charge": Column("for each further charge", 1),
    "redis_cpu": Column("CPU µs of Redis", 1, "less"),
    "redis_ours": Column("ours / it, CPU of Redis", 2),
}


@dataclass(slots=True)
class Subject:
    """The CPU times of one subject in one shape, in microseconds a request; none after an error."""

    runner: Runner
    row: Row
    requests: int = LEAST
    known: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    redis: list[float] = field(default_factory=list)

    @property
    def is_sampled(self) -> bool:
        """Whether it is measured less often, because some are slow."""
        return self.row.subject.is_of_others or self.row.subject.peer.name == "plain"


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    for runner in runners:
        _warm_up(runner)
    rows = [row for shape in SHAPES for row in _rows(shape, runners, plan)]
    note = f"{plan.known_clients:,} known clients and {plan.new_clients:,} new ones."
    part = Part("shapes", "Shapes of use", COLUMNS, rows, note)
    scale = BARE_US / mid(row.figure("known") for row in rows if row.subject.peer.name == "bare")
    for row in rows:
        _compare(row, part, scale)
    return [part]


def _warm_up(runner: Runner) -> None:
    """Send requests for a while, because the first thousands take more CPU time in a new process."""
    shape = next((shape for shape, peers in SHAPES.items() if runner.subject.peer.name in peers), "")
    seconds = 0.0
    with suppress(Failed):  # it fails again where it is measured
        runner.use(QUOTA, shape)
        while shape and seconds < WARM_UP:
            seconds += runner.call("burst", requests=500, at_once=AT_ONCE, clients=500)["wall"]


def _rows(shape: str, runners: Sequence[Runner], plan: Plan) -> list[Row]:
    """Measure one shape: rounds of known clients, then chunks of new ones; subjects alternate."""
    chosen = [each for each in runners if each.subject.peer.name in SHAPES[shape]]
    subjects = [Subject(runner, Row(runner.subject, shape=shape)) for runner in chosen]
    if not any(runner.subject.where != "none" for runner in chosen):
        return []
    for subject in subjects:
        _prepare(subject, shape, plan)
    for number in range(plan.shape_rounds):
        for subject in _turned(subjects, number):
            if number % 2 == 0 or not subject.is_sampled:
                _known(subject, plan)
    clients = max(LEAST, plan.new_clients // CHUNKS)
    for number in range(plan.new_clients // clients):
        for subject in _turned(subjects, number):
            if number % SAMPLED == 0 or not subject.is_sampled:
                _new(subject, plan.known_clients + number * clients, clients)
    bare = subjects[0]
    for subject in subjects:
        subject.row.figures = _figures(subject, bare) if not subject.row.error else {}
    return [subject.row for subject in subjects]


def _turned(subjects: list[Subject], number: int) -> list[Subject]:
    """Those without an error; each round starts with another one."""
    start = number % len(subjects)
    return [subject for subject in subjects[start:] + subjects[:start] if not subject.row.error]


def _prepare(subject: Subject, shape: str, plan: Plan) -> None:
    """Build an app, send one request from each known client, and find out how many requests fit into a round."""
    try:
        subject.runner.use(QUOTA, shape)
        for _ in range(2):  # the second time, everything that it uses has been imported
            answer = subject.runner.call(
                "burst", requests=plan.known_clients, at_once=AT_ONCE, clients=plan.known_clients
            )
    except Failed as failure:
        subject.row.error = str(failure)
        return
    subject.row.error = unexpected(answer["statuses"], ("200",))
    subject.requests = max(LEAST, int(plan.known_clients * plan.round_seconds / answer["wall"]))


def _known(subject: Subject, plan: Plan) -> None:
    redis = subject.runner.redis
    before = redis.work() if redis else None
    try:
        answer = subject.runner.call(
            "burst", requests=subject.requests, at_once=AT_ONCE, clients=plan.known_clients, warm=WARM
        )
    except Failed as failure:
        subject.row.error = str(failure)
        return
    subject.row.error = unexpected(answer["statuses"], ("200",))
    subject.known.append(answer["cpu"] / subject.requests * 1e6)
    if redis and before:
        subject.redis.append(redis.work_since(before).cpu / (subject.requests + WARM) * 1e6)


def _new(subject: Subject, first: int, clients: int) -> None:
    try:
        answer = subject.runner.call("visit", first=first, clients=clients, at_once=AT_ONCE, warm=[*range(WARM)])
    except Failed as failure:
        subject.row.error = str(failure)
        return
    subject.row.error = unexpected(answer["statuses"], ("200",))
    subject.new.append(answer["cpu"] / clients * 1e6)


def _figures(subject: Subject, bare: Subject) -> dict[str, float]:
    """A bare app shows its own CPU time, and the others what they take more."""
    if subject.row.subject.where == "none":
        return {"known": best(subject.known), "new": mid(subject.new)}
    known, new = best(subject.known) - best(bare.known), mid(subject.new) - mid(bare.new)
    return {"known": known, "new": new, "growth": new / known, "redis_cpu": best(subject.redis)}


def _compare(row: Row, part: Part, scale: float) -> None:
    """Add the ratio of ours to a peer, or what ours takes more than for a single quota."""
    figures = row.figures
    if row.subject.is_of_others or row.subject.peer.name == "plain":
        ours = part.row(row.name_of(row.subject.ours))
        if ours:
            for ratio, of in (("ours_known", "known"), ("ours_new", "new"), ("redis_ours", "redis_cpu")):
                figures[ratio] = ours.figure(of) / row.figure(of)
    elif row.subject.where != "none":
        single = part.row(f"single: {row.subject.name}")
        figures["scaled"] = row.figure("known") * scale
        over = figures["scaled"] - single.figure("scaled") if single and row.shape in EXTENDED else NAN
        figures["over_single"] = over
        figures["charge"] = over / (CHARGES[row.shape] - 1) if row.shape in CHARGES else NAN
