"""A flood on a client that has nothing left: how many refusals a second, and what Redis hears of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..plan import Plan
from ..results import Part, Row, mid, unexpected
from ..runner import Failed, Runner, runners
from ..subject import Quota, base_of

QUOTA = Quota(3, "hour")
AT_ONCE = 64
COLUMNS = {
    "admitted": f"let through, of {QUOTA}|0",
    "of_bare": "answers a second, of bare|2",
    "of_ours": "of ours, same store|2",
    "trips": "round trips a request|3",
    "scripts": "EVALs a request|3",
}


def run(found: Sequence[Any], plan: Plan) -> Part:
    with runners(found, QUOTA) as running:
        rows = {runner.subject.name: Row(runner.subject) for runner in running}
        rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
        requests = {runner.subject.name: _use_up(runner, rows[runner.subject.name], plan) for runner in running}
        for _ in range(plan.rounds):
            for runner in running:
                name = runner.subject.name
                if requests[name]:
                    _round(runner, rows[name], requests[name], rounds[name])
    for name, row in rows.items():
        if rounds[name]:
            row.figures |= _figures(row, rounds)
    return Part("A flood on one refused client", COLUMNS, list(rows.values()))


def _use_up(runner: Runner, row: Row, plan: Plan) -> int:
    """Take what there is, one at a time; the requests for a round, or 0 for a subject that breaks."""
    try:
        answer = runner.ask("burst", requests=100, at_once=1, clients=1)
    except Failed as failure:
        row.error = str(failure)
        return 0
    row.error = unexpected(answer["statuses"], ("200", "429"))
    if runner.subject.where != "none":
        row.figures["admitted"] = answer["statuses"].get("200", 0)
    return 0 if row.error else max(AT_ONCE, int(100 * plan.round_seconds / answer["wall"]))


def _round(runner: Runner, row: Row, requests: int, rounds: list[dict[str, float]]) -> None:
    before = runner.redis.work() if runner.redis else None
    try:
        answer = runner.ask("burst", requests=requests, at_once=AT_ONCE, clients=1)
    except Failed as failure:
        row.error = str(failure)
        return
    expected = "200" if runner.subject.where == "none" else "429"
    row.error = row.error or unexpected(answer["statuses"], (expected,))
    each = {"wall": answer["wall"] / requests}
    if runner.redis and before:
        work = runner.redis.work().since(before)
        each |= {"trips": work.trips / requests, "scripts": work.scripts / requests}
    rounds.append(each)


def _figures(row: Row, rounds: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    def wall(name: str) -> float:
        return mid(each["wall"] for each in rounds.get(name, ()))

    own = wall(row.subject.name)
    figures = {"of_bare": wall(base_of(row.subject.peer)) / own, "of_ours": wall(f"ours {row.subject.where}") / own}
    if row.subject.where == "redis":
        figures |= {name: mid(each[name] for each in rounds[row.subject.name]) for name in ("trips", "scripts")}
    return figures
