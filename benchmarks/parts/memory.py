"""What Redis keeps for each client that is being counted, by MEMORY USAGE."""

from __future__ import annotations

from collections.abc import Sequence

from ..plan import Plan
from ..results import NAN, Column, Part, Row, unexpected
from ..runner import Failed, Runner
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
    """After some more requests, of all clients in turn."""
    answer = runner.ask("burst", requests=requests, at_once=1, clients=CLIENTS)
    row.error = row.error or unexpected(answer["statuses"], ("200",))
    return runner.redis.bytes() / CLIENTS if runner.redis else NAN
