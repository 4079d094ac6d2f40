"""Requests through a real server: uvicorn with one worker, 50 connections from another process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..processes.throughput import rate
from ..reporting.results import Column, Part, Round, Row, best, mid, over, paired, spread
from ..subject import OPEN

COLUMNS = {
    "rate": Column("requests a second"),
    "spread": Column("spread", 2),
    "of_bare": Column("of the bare app", 2),
    "of_ours": Column("of ours, same store", 2),
    "cpu": Column("CPU µs a request", 1),
    "cpu_more": Column("more than the bare app", 1, "less"),
}
WARM_UP = 0.2


SHAPED, SHAPE = ("bare", "ours", "limits"), "default+rule"
"""Peers that are also measured in this shape of use."""


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    shaped = [runner for runner in runners if runner.subject.peer.name in SHAPED]
    rows = _rows(runners, plan) + _rows(shaped, plan, SHAPE)
    return [Part("served", "Behind uvicorn", COLUMNS, rows)]


def _rows(runners: Sequence[Runner], plan: Plan, shape: str = "") -> list[Row]:
    rows = {runner.subject.name: Row(runner.subject, shape=shape) for runner in runners}
    rounds: dict[str, list[Round]] = defaultdict(list)
    ports = {runner.subject.name: _listen(runner, rows[runner.subject.name]) for runner in runners}
    for number in range(plan.served_rounds):
        start = number * len(runners) // plan.served_rounds
        for runner in [*runners[start:], *runners[:start]]:
            name = runner.subject.name
            if not rows[name].error:
                _round(runner, ports[name], plan.served_seconds, rows[name], rounds[name])
    for row in rows.values():
        if not row.error:
            row.figures = _figures(row, rounds)
    return list(rows.values())


def _listen(runner: Runner, row: Row) -> int:
    """Start the server and warm it up; return its port, or 0 after an error."""
    try:
        port = runner.listen(OPEN, row.shape)
    except Failed as failure:
        row.error = str(failure)
        return 0
    row.error = rate(port, WARM_UP).error
    return port


def _round(runner: Runner, port: int, seconds: float, row: Row, rounds: list[Round]) -> None:
    try:
        before = runner.call("cpu")["cpu"]
        answers = rate(port, seconds)
        used = runner.call("cpu")["cpu"] - before
    except Failed as failure:
        row.error = str(failure)
        return
    row.error = answers.error
    if not row.error:
        rounds.append({"rate": answers.a_second, "cpu": used / answers.count * 1e6})


def _figures(row: Row, rounds: dict[str, list[Round]]) -> dict[str, float]:
    subject = row.subject
    own, base, ours = (
        rounds[subject.name],
        rounds[subject.base],
        rounds[subject.ours] if subject.where != "none" else [],
    )
    return {
        "rate": mid(each["rate"] for each in own),
        "spread": spread([each["rate"] for each in own]),
        "of_bare": paired(own, base, "rate", over),
        "of_ours": paired(own, ours, "rate", over),
        "cpu": best(each["cpu"] for each in own),
        "cpu_more": best(each["cpu"] for each in own) - best(each["cpu"] for each in base),
    }
