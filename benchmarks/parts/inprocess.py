"""Requests straight into the app: CPU for each, time for one, and what Redis spends on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plan import Plan
from ..results import Part, Row, mid, unexpected
from ..runner import Failed, Runner, runners
from ..subject import OPEN, base_of

AT_ONCE = (1, 64, 256, 1000)
PROBE = 200
"""Requests by which the number for a round is found."""

COLUMNS = {
    **{f"cpu_{n}": f"CPU µs more, {n:,} at once|1" for n in AT_ONCE},
    "times_1": "median at 1, times bare|2",
    "median_us": "median µs|1",
    "p99_us": "p99 µs|0",
    "latency_plain": "median at 1, times plain|2",
    "throughput_bare": "throughput at 64, of bare|2",
    "throughput_plain": "throughput at 64, times plain|2",
    "redis_cpu": "Redis CPU µs, at 64|2",
    "redis_cpu_plain": "Redis CPU, times plain|2",
    "script_us": "of it in scripts µs|2",
    "trips": "round trips a request, at 64|2",
}


@dataclass(slots=True)
class Rounds:
    """The rounds of one subject, by how many were at once."""

    runner: Runner
    done: dict[int, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    requests: int = 0
    errors: dict[int, str] = field(default_factory=dict)

    def mid(self, at_once: int, figure: str) -> float:
        return mid(each[figure] for each in self.done[at_once] if figure in each)


def run(found: Sequence[Any], plan: Plan) -> Part:
    with runners(found, OPEN) as running:
        every = {runner.subject.name: Rounds(runner) for runner in running}
        for at_once in AT_ONCE:
            _interleave(list(every.values()), at_once, plan)
        return Part("In process", COLUMNS, [_row(rounds, every) for rounds in every.values()])


def _interleave(every: list[Rounds], at_once: int, plan: Plan) -> None:
    """One round of each subject in turn, and again, each time from another one on."""
    for rounds in every:
        _probe(rounds, at_once, plan)
    for number in range(plan.rounds):
        start = number * len(every) // plan.rounds
        for rounds in every[start:] + every[:start]:
            if at_once not in rounds.errors:
                _round(rounds, at_once, plan)


def _probe(rounds: Rounds, at_once: int, plan: Plan) -> None:
    requests = max(PROBE, at_once)
    answer = _ask(rounds, requests, at_once, plan)
    if answer:
        fits = int(requests * plan.round_seconds / answer["wall"])
        rounds.requests = max(at_once, 100, fits)


def _round(rounds: Rounds, at_once: int, plan: Plan) -> None:
    redis = rounds.runner.redis
    before = redis.work() if redis else None
    answer = _ask(rounds, rounds.requests, at_once, plan)
    if not answer:
        return
    requests = answer["requests"]
    each = {"cpu": answer["cpu"] / requests * 1e6, "wall": answer["wall"] / requests * 1e6}
    each |= {name: answer[name] for name in ("median_us", "p99_us") if name in answer}
    if redis and before:
        work = redis.work().since(before)
        each["redis_cpu"] = work.cpu / requests * 1e6
        each["script_us"] = work.script_time / requests * 1e6
        each["trips"] = work.trips / requests
    rounds.done[at_once].append(each)


def _ask(rounds: Rounds, requests: int, at_once: int, plan: Plan) -> dict[str, Any] | None:
    try:
        answer = rounds.runner.ask("burst", requests=requests, at_once=at_once, clients=plan.clients)
        error = unexpected(answer["statuses"], ("200",))
    except Failed as failure:
        answer, error = None, str(failure)
    if error:
        rounds.errors[at_once] = error
        rounds.done[at_once].clear()
        return None
    return answer


def _row(rounds: Rounds, every: dict[str, Rounds]) -> Row:
    subject = rounds.runner.subject
    base, plain = every[base_of(subject.peer)], every.get("plain redis")
    figures = {f"cpu_{n}": _more(rounds, base, n) for n in AT_ONCE}
    if rounds is base:
        figures = {f"cpu_{n}": rounds.mid(n, "cpu") for n in AT_ONCE}
    figures |= {name: rounds.mid(1, name) for name in ("median_us", "p99_us")}
    figures["times_1"] = rounds.mid(1, "median_us") / base.mid(1, "median_us")
    figures["throughput_bare"] = base.mid(64, "wall") / rounds.mid(64, "wall")
    if subject.where == "redis":
        figures |= {name: rounds.mid(64, name) for name in ("redis_cpu", "script_us", "trips")}
        if plain:
            figures |= _against_plain(rounds, plain)
    return Row(subject, figures, _errors(rounds.errors))


def _errors(errors: dict[int, str]) -> str:
    """One for all that failed alike."""
    if len(errors) == len(AT_ONCE) and len(set(errors.values())) == 1:
        return errors[1]
    return "; ".join(f"{n:,} at once: {error}" for n, error in errors.items())


def _more(rounds: Rounds, base: Rounds, at_once: int) -> float:
    return rounds.mid(at_once, "cpu") - base.mid(at_once, "cpu")


def _against_plain(rounds: Rounds, plain: Rounds) -> dict[str, float]:
    return {
        "latency_plain": rounds.mid(1, "median_us") / plain.mid(1, "median_us"),
        "throughput_plain": plain.mid(64, "wall") / rounds.mid(64, "wall"),
        "redis_cpu_plain": rounds.mid(64, "redis_cpu") / plain.mid(64, "redis_cpu"),
    }
