"""A flood from a client whose quota is used up: refusals a second, and how many of them reach Redis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..reporting.results import Column, Part, Round, Row, mid, over, paired, unexpected
from ..subject import Quota

QUOTA = Quota(3, "hour")
AT_ONCE = 64
USE_UP = 100
COLUMNS = {
    "admitted": Column(f"let through, of {QUOTA}"),
    "rate": Column("answers a second"),
    "of_bare": Column("of the bare app", 2, "more"),
    "of_ours": Column("of ours, same store", 2),
    "attack": Column("an attack of so many"),
    "takes": Column("EVALSHAs a second of it", 1, "less"),
    "trips": Column("round trips a request", 4, "less"),
}


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    rows = {runner.subject.name: Row(runner.subject) for runner in runners}
    rounds: dict[str, list[Round]] = defaultdict(list)
    speeds = {runner.subject.name: _use_up(runner, rows[runner.subject.name]) for runner in runners}
    for number in range(plan.rounds):
        start = number * len(runners) // plan.rounds
        for runner in [*runners[start:], *runners[:start]]:
            name = runner.subject.name
            _round(runner, rows[name], int(speeds[name] * plan.round_seconds), rounds[name])
    for runner in runners:
        row = rows[runner.subject.name]
        row.figures |= {} if row.error else _figures(row, rounds)
        _attack(runner, row, plan.attack_seconds)
    return [Part("flood", "A flood on one refused client", COLUMNS, list(rows.values()))]


def _use_up(runner: Runner, row: Row) -> float:
    """Use up the quota, one request at a time; then return the requests a second at full speed."""
    try:
        runner.use(QUOTA)
        statuses = runner.call("burst", requests=USE_UP, at_once=1, clients=1)["statuses"]
    except Failed as failure:
        row.error = str(failure)
        return 0
    _count(row, statuses)
    answer = _burst(runner, row, USE_UP)
    return USE_UP / answer["wall"] if answer else 0


def _round(runner: Runner, row: Row, requests: int, rounds: list[Round]) -> None:
    answer = _burst(runner, row, max(USE_UP, requests))
    if answer:
        rounds.append({"rate": answer["requests"] / answer["wall"]})


def _attack(runner: Runner, row: Row, seconds: float) -> None:
    """Send requests for some seconds without a pause, and count what reaches Redis."""
    if row.error or not runner.redis:
        return
    before = runner.redis.work()
    requests = int(row.figures["rate"] * seconds)
    answer = _burst(runner, row, requests, warm=0)
    if answer:
        work = runner.redis.work_since(before)
        row.figures["attack"] = requests
        row.figures["takes"] = work.takes / answer["wall"]
        row.figures["trips"] = work.trips / requests


def _burst(runner: Runner, row: Row, requests: int, warm: int = AT_ONCE) -> dict[str, Any] | None:
    """The answer; ``None`` after an error, in this call or an earlier one."""
    if row.error:
        return None
    try:
        answer = runner.call("burst", requests=requests, at_once=AT_ONCE, clients=1, warm=warm)
    except Failed as failure:
        row.error = str(failure)
        return None
    _count(row, answer["statuses"])
    return None if row.error else answer


def _count(row: Row, statuses: dict[str, int]) -> None:
    """Add up the requests that were let through."""
    row.error = row.error or unexpected(statuses, ("200", "429"))
    if row.subject.where != "none":
        row.figures["admitted"] = row.figures.get("admitted", 0) + statuses.get("200", 0)


def _figures(row: Row, rounds: dict[str, list[Round]]) -> dict[str, float]:
    subject = row.subject
    own = rounds[subject.name]
    ours = rounds[subject.ours] if subject.where != "none" else []
    return {
        "rate": mid(each["rate"] for each in own),
        "of_bare": paired(own, rounds[subject.base], "rate", over),
        "of_ours": paired(own, ours, "rate", over),
    }
