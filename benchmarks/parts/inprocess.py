"""Requests straight into the app: CPU for each, time for one, and what Redis spends on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..plan import Plan
from ..processes.redis_stats import Work
from ..processes.runner import Failed, Runner
from ..reporting.results import NAN, Column, Part, Round, Row, best, mid, over, paired, unexpected
from ..subject import OPEN

AT_ONCE = (1, 64, 256, 1000)
LEAST = 100
"""Requests in a round, at least."""
WARM = 64
"""Requests before it."""

BARE_US = 7.0
"""CPU of the bare app on the machine on which the goals were set."""

CPU = {
    **{f"cpu_{n}": Column(f"CPU µs more, {n:,} at once", 1, "less") for n in AT_ONCE},
    "scaled_64": Column(f"at 64, scaled to {BARE_US:.0f} µs of bare Starlette", 1),
    "cpu_bare": Column("CPU at 64, times bare", 2),
    "cpu_ours": Column("more at 64, times ours", 2),
}
TIMES = {
    "median_us": Column("median µs, 1 at once", 1, "less"),
    "p99_us": Column("p99 µs"),
    "latency_plain": Column("median, times plain", 2),
    **{f"mean_{n}": Column(f"mean ms, {n:,} at once", 2, "less") for n in AT_ONCE[1:]},
    "throughput_bare": Column("throughput at 64, of bare", 2, "more"),
    "throughput_plain": Column("throughput at 64, times plain", 2),
    "rate_1000": Column("requests a second, 1,000 at once", 0, "more"),
}
REDIS = {
    "redis_cpu": Column("CPU µs of Redis", 2, "less"),
    "redis_cpu_plain": Column("times plain", 2),
    "script_us": Column("of it in scripts µs", 2, "less"),
    "trips": Column("round trips a request", 2, "less"),
    "connections": Column("connections, 1,000 at once", 0, "less"),
}


@dataclass(slots=True)
class Subject:
    """The rounds of one subject, by requests at once; none after an error."""

    runner: Runner
    rounds: dict[int, list[Round]] = field(default_factory=lambda: defaultdict(list))
    requests: int = 0
    errors: dict[int, str] = field(default_factory=dict)

    def best(self, at_once: int, figure: str) -> float:
        return best(each.get(figure, NAN) for each in self.rounds[at_once])


Subjects: TypeAlias = dict[str, Subject]


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    subjects = {runner.subject.name: Subject(runner) for runner in runners}
    for subject in subjects.values():
        _prepare(subject, plan)
    for at_once in AT_ONCE:
        _interleave(list(subjects.values()), at_once, plan)
    on_redis = {name: subject for name, subject in subjects.items() if subject.runner.redis}
    return [
        Part("cpu", "In process: CPU for each request", CPU, _rows(subjects, _cpu)),
        Part("times", "In process: times and throughput", TIMES, _rows(subjects, _times)),
        Part("redis", "In process: what Redis does for each request, 64 at once", REDIS, _rows(on_redis, _redis)),
    ]


def _prepare(subject: Subject, plan: Plan) -> None:
    """Build an app and send one request from each client."""
    try:
        subject.runner.use(OPEN)
        subject.runner.call("burst", requests=plan.clients, at_once=1, clients=plan.clients)
    except Failed as failure:
        subject.errors = dict.fromkeys(AT_ONCE, str(failure))


def _interleave(subjects: list[Subject], at_once: int, plan: Plan) -> None:
    """Repeat one round of each subject; each repetition starts with another subject."""
    for subject in subjects:
        _probe(subject, at_once, plan)
    rounds = plan.rounds if at_once <= 64 else plan.rounds // 2  # many at once take longer, and have no goal
    for number in range(rounds):
        start = number * len(subjects) // rounds
        for subject in subjects[start:] + subjects[:start]:
            _round(subject, at_once, plan)


def _probe(subject: Subject, at_once: int, plan: Plan) -> None:
    """Measure how many requests fit into a round."""
    requests = max(LEAST, at_once)
    answer = _burst(subject, requests, at_once, plan)
    if answer:
        fits = int(requests * plan.round_seconds / answer["wall"])
        subject.requests = max(LEAST, at_once, fits)


def _round(subject: Subject, at_once: int, plan: Plan) -> None:
    redis = subject.runner.redis
    before = redis.work() if redis else None
    answer = _burst(subject, subject.requests, at_once, plan)
    if not answer:
        return
    requests = answer["requests"]
    figures = {"cpu": answer["cpu"] / requests * 1e6, "wall": answer["wall"] / requests * 1e6}
    figures |= {name: answer[name] for name in ("median_us", "p99_us")}
    if redis and before:
        figures |= _redis_work(redis.work_since(before), requests + WARM)
    subject.rounds[at_once].append(figures)


def _redis_work(work: Work, requests: int) -> Round:
    return {
        "redis_cpu": work.cpu / requests * 1e6,
        "script_us": work.script_time / requests * 1e6,
        "trips": work.trips / requests,
        "connections": work.connections,
    }


def _burst(subject: Subject, requests: int, at_once: int, plan: Plan) -> dict[str, Any] | None:
    """The answer; ``None`` after an error, in this call or an earlier one."""
    if at_once in subject.errors:
        return None
    try:
        answer = subject.runner.call("burst", requests=requests, at_once=at_once, clients=plan.clients, warm=WARM)
        error = unexpected(answer["statuses"], ("200",))
    except Failed as failure:
        answer, error = {}, str(failure)
    if error:
        subject.errors[at_once] = error
        subject.rounds[at_once].clear()
    return None if error else answer


def _rows(subjects: Subjects, figures: Callable[[Subject, Subjects], dict[str, float]]) -> list[Row]:
    return [
        Row(subject.runner.subject, figures(subject, subjects), _error(subject.errors)) for subject in subjects.values()
    ]


def _cpu(subject: Subject, subjects: Subjects) -> dict[str, float]:
    identity = subject.runner.subject
    base, ours = subjects[identity.base], subjects.get(identity.ours)
    if subject is base:
        return {f"cpu_{n}": subject.best(n, "cpu") for n in AT_ONCE}
    more = {f"cpu_{n}": subject.best(n, "cpu") - base.best(n, "cpu") for n in AT_ONCE}
    bare = base.best(64, "cpu")
    return more | {
        "scaled_64": more["cpu_64"] * BARE_US / subjects["bare"].best(64, "cpu"),
        "cpu_bare": (bare + more["cpu_64"]) / bare,
        "cpu_ours": more["cpu_64"] / (ours.best(64, "cpu") - bare) if ours else NAN,
    }


def _times(subject: Subject, subjects: Subjects) -> dict[str, float]:
    figures = {"median_us": subject.best(1, "median_us"), "p99_us": mid(each["p99_us"] for each in subject.rounds[1])}
    figures |= {f"mean_{n}": n * subject.best(n, "wall") / 1e3 for n in AT_ONCE[1:]}  # by Little's law
    identity, plain = subject.runner.subject, subjects.get("plain redis")
    base = subjects[identity.base].rounds[64]
    figures["throughput_bare"] = paired(base, subject.rounds[64], "wall", over)
    figures["rate_1000"] = 1e6 / subject.best(1000, "wall")
    if identity.where == "redis" and plain:
        figures["latency_plain"] = paired(subject.rounds[1], plain.rounds[1], "median_us", over)
        figures["throughput_plain"] = paired(plain.rounds[64], subject.rounds[64], "wall", over)
    return figures


def _redis(subject: Subject, subjects: Subjects) -> dict[str, float]:
    figures = {name: subject.best(64, name) for name in ("redis_cpu", "script_us", "trips")}
    plain = subjects.get("plain redis")
    return figures | {
        "redis_cpu_plain": figures["redis_cpu"] / plain.best(64, "redis_cpu") if plain else NAN,
        "connections": max((each.get("connections", NAN) for each in subject.rounds[1000]), default=NAN),
    }


def _error(errors: dict[int, str]) -> str:
    """One message if all failed alike."""
    if len(errors) == len(AT_ONCE) and len(set(errors.values())) == 1:
        return errors[1]
    return "; ".join(f"{n:,} at once: {error}" for n, error in errors.items())
