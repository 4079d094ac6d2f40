"""The memory of Redis for each client, by MEMORY USAGE."""

from __future__ import annotations

from collections.abc import Sequence

from ..plan import Plan
from ..processes.runner import Failed, Runner
from ..reporting.results import NAN, Column, Part, Row, unexpected
from ..subject import Quota

QUOTA = Quota(10_000, "hour")
CLIENTS = 20
COLUMNS = {
    "bytes_1": Column("bytes a client, after 1 request", 0, "less"),
    "bytes_50": Column("after 50 requests", 0, "less"),
}


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    return [Part("memory", "Redis memory", COLUMNS, [_row(runner) for runner in runners if runner.redis])]


def _row(runner: Runner) -> Row:
    row = Row(runner.subject)
    try:
        runner.use(QUOTA)
        row.figures["bytes_1"] = _bytes(runner, row, CLIENTS)
        row.figures["bytes_50"] = _bytes(runner, row, 49 * CLIENTS)
    except Failed as failure:
        row.error = str(failure)
    return row


def _bytes(runner: Runner, row: Row, requests: int) -> float:
    """Bytes for each client after more requests, from one client after another."""
    answer = runner.call("burst", requests=requests, at_once=1, clients=CLIENTS)
    row.error = row.error or unexpected(answer["statuses"], ("200",))
    return runner.redis.bytes() / CLIENTS if runner.redis else NAN
