"""What Redis keeps for each client that is being counted, by MEMORY USAGE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plan import Plan
from ..results import Part, Row, unexpected
from ..runner import Failed, Runner, runners
from ..subject import Quota

QUOTA = Quota(10_000, "hour")
CLIENTS = 100
COLUMNS = {"bytes_1": "bytes a client, after 1 request|0", "bytes_50": "after 50 requests|0"}


def run(found: Sequence[Any], plan: Plan) -> Part:
    with runners([each for each in found if each[0].where == "redis"], QUOTA) as running:
        return Part("Redis memory", COLUMNS, [_row(runner) for runner in running])


def _row(runner: Runner) -> Row:
    row = Row(runner.subject)
    for times, more in ((1, 1), (50, 49)):
        row.figures[f"bytes_{times}"] = _bytes(runner, row, more * CLIENTS)
    return row


def _bytes(runner: Runner, row: Row, requests: int) -> float:
    try:
        answer = runner.ask("burst", requests=requests, at_once=1, clients=CLIENTS)
    except Failed as failure:
        row.error = str(failure)
        return float("nan")
    row.error = row.error or unexpected(answer["statuses"], ("200",))
    return runner.redis.bytes() / CLIENTS if runner.redis else float("nan")
