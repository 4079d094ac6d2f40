"""Ten times the quota from one client: how many requests are let through, and how many the quota allows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..reporting.results import Column, Part, Row, unexpected
from ..subject import Quota

QUOTA = Quota(20, "second")
EACH, EVERY = 10, 0.05
"""Requests at once, and the seconds between: ten times the quota."""
TOGETHER = 6
"""Subjects that run at the same time: they mostly sleep."""

COLUMNS = {
    "admitted": Column("let through"),
    "allowed": Column("allowed: burst + rate · T"),
    "ratio": Column("let through / allowed", 3),
    "second": Column(f"most in any 1 s, of {QUOTA.limit}"),
    "late": Column("late ticks"),
}


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    limited = [runner for runner in runners if runner.subject.where != "none"]
    groups = [limited[start : start + TOGETHER] for start in range(0, len(limited), TOGETHER)]
    rows = [row for group in groups for row in _rows(group, plan)]
    return [Part("admission", "Ten times the quota", COLUMNS, rows)]


def _rows(group: Sequence[Runner], plan: Plan) -> list[Row]:
    rows = [Row(runner.subject) for runner in group]
    for do in (_prepare, _start, _finish):
        for runner, row in zip(group, rows, strict=True):
            if not row.error:
                try:
                    do(runner, row, plan)
                except Failed as failure:
                    row.error = str(failure)
    return rows


def _prepare(runner: Runner, row: Row, plan: Plan) -> None:
    runner.use(QUOTA)


def _start(runner: Runner, row: Row, plan: Plan) -> None:
    runner.send("flood", seconds=plan.flood_seconds, each=EACH, every=EVERY)


def _finish(runner: Runner, row: Row, plan: Plan) -> None:
    answer = runner.receive()
    row.error = unexpected(answer["statuses"], ("200", "429"))
    allowed = QUOTA.limit + QUOTA.limit / QUOTA.seconds * answer["seconds"]
    passed = sorted(answer["passed"])
    row.figures = {
        "admitted": len(passed),
        "allowed": int(allowed),
        "ratio": len(passed) / allowed,
        "second": most_in_a_second(passed),
        "late": answer["late"],
    }


def most_in_a_second(times: Sequence[float]) -> int:
    """The most of these sorted times within any second; the end of the second is not part of it."""
    return max((bisect_left(times, time + 1.0) - place for place, time in enumerate(times)), default=0)
