"""Requests through a real server: uvicorn with one worker, 50 connections from another process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from tests.server import Uvicorn

from ..clients import rate
from ..plan import Plan
from ..results import Part, Row, mid, spread
from ..subject import Subject, base_of

COLUMNS = {
    "rate": "requests a second|0",
    "spread": "spread|2",
    "of_bare": "of the bare app|2",
    "of_ours": "of ours, same store|2",
}
_QUIET = ("--no-access-log", "--log-level", "warning")
_WARM_UP = 0.2


def run(found: Sequence[Any], plan: Plan) -> Part:
    rows = {subject.name: Row(subject) for subject, _ in found}
    rates: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers = _start_all(rows, stack)
        for name, server in servers.items():
            rows[name].error = rate(server.port, _WARM_UP)[1]
        for _ in range(plan.served_rounds):
            for name, server in servers.items():
                if not rows[name].error:
                    _round(rows[name], server, plan.served_seconds, rates[name])
    for row in rows.values():
        if not row.error:
            row.figures = _figures(row.subject, rates)
    return Part("Behind uvicorn", COLUMNS, list(rows.values()))


def _start_all(rows: dict[str, Row], stack: ExitStack) -> dict[str, Uvicorn]:
    """The servers of all that start up; two at a time, as that takes them a while."""
    with ThreadPoolExecutor(2) as threads:
        started = dict(zip(rows, threads.map(_start, rows.values()), strict=True))
    servers = {name: server for name, server in started.items() if server}
    for server in servers.values():
        stack.callback(server.stop)
    return servers


def _start(row: Row) -> Uvicorn | None:
    subject = row.subject
    env = {"BENCH_PEER": subject.peer, "BENCH_WHERE": subject.where, "BENCH_URL": subject.url}
    server = Uvicorn("benchmarks.served:app", *_QUIET, env=env)
    try:
        server.start()
    except RuntimeError as error:
        row.error = str(error).strip().splitlines()[-1][:120]
        return None
    return server


def _round(row: Row, server: Uvicorn, seconds: float, rates: list[float]) -> None:
    found, row.error = rate(server.port, seconds)
    rates.append(found)


def _figures(subject: Subject, rates: dict[str, list[float]]) -> dict[str, float]:
    own = mid(rates[subject.name])
    bare, ours = mid(rates[base_of(subject.peer)]), mid(rates.get(f"ours {subject.where}", ()))
    return {"rate": own, "spread": spread(rates[subject.name]), "of_bare": own / bare, "of_ours": own / ours}
