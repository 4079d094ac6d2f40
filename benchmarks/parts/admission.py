"""Ten times the quota from one client: how many get through, beside what the quota allows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ..plan import Plan
from ..results import Part, Row, unexpected
from ..runner import Failed, Runner, runners
from ..subject import Quota

QUOTA = Quota(20, "second")
EACH, EVERY = 10, 0.05
"""Requests at once, and the seconds between: ten times the quota."""
TOGETHER = 5
"""Subjects at the same time: they wait more than they work."""

COLUMNS = {
    "admitted": "let through|0",
    "allowed": "allowed: burst + rate · T|0",
    "ratio": "let through / allowed|3",
    "second": f"most in any 1 s, of {QUOTA.limit}|0",
    "late": "late ticks|0",
}


def run(found: Sequence[Any], plan: Plan) -> Part:
    limited = [each for each in found if each[0].where != "none"]
    groups = [limited[start : start + TOGETHER] for start in range(0, len(limited), TOGETHER)]
    return Part("Ten times the quota", COLUMNS, [row for group in groups for row in _rows(group, plan)])


def _rows(group: Sequence[Any], plan: Plan) -> list[Row]:
    with runners(group, QUOTA) as running:
        rows = [Row(runner.subject, error=_start(runner, plan)) for runner in running]
        for runner, row in zip(running, rows, strict=True):
            if not row.error:
                _finish(runner, row)
        return rows


def _start(runner: Runner, plan: Plan) -> str:
    try:
        runner.send("flood", seconds=plan.flood_seconds, each=EACH, every=EVERY)
    except Failed as failure:
        return str(failure)
    return ""


def _finish(runner: Runner, row: Row) -> None:
    try:
        answer = runner.receive()
    except Failed as failure:
        row.error = str(failure)
        return
    row.error = unexpected(answer["statuses"], ("200", "429"))
    allowed = QUOTA.limit + QUOTA.limit / QUOTA.seconds * answer["seconds"]
    passed = len(answer["passed"])
    row.figures = {"admitted": passed, "allowed": int(allowed), "ratio": passed / allowed}
    row.figures |= {"second": most_in_a_second(sorted(answer["passed"])), "late": answer["late"]}


def most_in_a_second(times: list[float]) -> int:
    """The most in any interval of one second, which is open at its end."""
    return max((bisect_left(times, time + 1.0) - place for place, time in enumerate(times)), default=0)
