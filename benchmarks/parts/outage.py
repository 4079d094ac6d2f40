"""A Redis that freezes for two seconds under load, and its effect on requests and on the event loop.

``python -m benchmarks.parts.outage PEER URL`` runs the app and sends the requests. Ours has its default settings here:
a deadline of a quarter of a second, and a limiter in the process when Redis does not answer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import uvloop
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message

from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

from ..apps.starlette_app import starlette_app
from ..plan import Plan
from ..processes.direct_client import address_of, receive, scope_of
from ..processes.lifespan import lifespan
from ..processes.redis_stats import RedisStats
from ..processes.runner import Runner
from ..reporting.results import Column, Part, Row, unexpected
from ..subject import OPEN, PEERS

EACH, EVERY = 2, 0.01
"""Requests at once, and the seconds between; they do not wait for earlier ones."""
CLIENTS = 50
BEFORE, FROZEN, BACK, AFTER = 1.0, 2.0, 1.0, 1.0
"""Seconds before Redis freezes, while it is frozen, until all should work again, and of measuring after that."""
ALIKE = ("ours_no_headers", "ours_fastapi")
"""Left out, because they behave like ours."""
WARM = 0.5
"""Seconds after which the gaps of the event loop count; before, modules are imported."""
SETTLED = 30.0
"""Seconds to wait for the last requests."""

COLUMNS = {
    "requests": Column("requests"),
    "wrong": Column("not answered with 200"),
    "slowest": Column("slowest answer ms", 0, "less"),
    "gap": Column("longest gap of the event loop ms"),
    "after": Column("slowest from 1 s after it ms"),
    "takes": Column("EVALSHAs in the second after that"),
}


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    chosen = [runner for runner in runners if runner.subject.where == "redis" and runner.subject.peer.name not in ALIKE]
    rows = [_row(runner) for runner in chosen]
    return [Part("outage", "Redis freezes for two seconds, at 200 requests a second", COLUMNS, rows)]


def _row(runner: Runner) -> Row:
    row = Row(runner.subject)
    with RedisServer() as server:
        command = (sys.executable, "-m", "benchmarks.parts.outage", runner.subject.peer.name, server.url)
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as sender:
            assert sender.stdout
            sender.stdout.readline()  # it has started
            row.figures["takes"] = _freeze(server)
            output = sender.stdout.readline()
    if not output:
        row.error = "the process ended without a message"
        return row
    answer = json.loads(output)
    row.error = unexpected(answer.pop("statuses"), ("200",))
    row.figures |= answer
    return row


def _freeze(server: RedisServer) -> int:
    """Freeze it for a while; return the calls of EVALSHA in the second after all should work again."""
    stats = RedisStats(server)
    time.sleep(BEFORE)
    server.pause()
    time.sleep(FROZEN)
    server.resume()
    time.sleep(BACK)
    before = stats.work()
    time.sleep(AFTER)
    return stats.work_since(before).takes


class Load:
    """Requests at a constant rate, which do not wait for earlier ones."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._statuses: Counter[str] = Counter()
        self._times: list[tuple[float, float]] = []

    async def measure(self) -> dict[str, Any]:
        """Send the requests; return the figures of the row, times in milliseconds."""
        start = last = time.perf_counter()
        gap, under_way = 0.0, set()
        while last - start < BEFORE + FROZEN + BACK + AFTER:
            for number in range(EACH):
                task = asyncio.create_task(self._send(len(self._times) + number, last - start))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(EVERY)
            now = time.perf_counter()
            gap, last = max(gap, now - last - EVERY) if now - start > WARM else gap, now
        if under_way:
            await asyncio.wait(under_way, timeout=SETTLED)
        late = [took for began, took in self._times if began > BEFORE + FROZEN + BACK]
        return {
            "requests": self._statuses.total() + len(under_way),
            "wrong": self._statuses.total() + len(under_way) - self._statuses["200"],
            "slowest": 1000 * max(took for _, took in self._times),
            "gap": 1000 * gap,
            "after": 1000 * max(late, default=SETTLED),
            "statuses": {**self._statuses, **({"no answer": len(under_way)} if under_way else {})},
        }

    async def _send(self, number: int, began: float) -> None:
        status, start = "no answer", time.perf_counter()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])

        try:
            await self._app(scope_of(address_of(number % CLIENTS), self._state), receive, send)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            status = f"{type(error).__name__}: {error}"[:120]
        self._statuses[status] += 1
        self._times.append((began, time.perf_counter() - start))


def _app(peer: str, url: str) -> ASGIApp:
    if peer == "ours":
        from asgi_ratelimit import RateLimitMiddleware, RedisStore  # where other peers run, it need not import

        return starlette_app(Middleware(RateLimitMiddleware, str(OPEN), store=RedisStore(url)))
    return PEERS[peer].build("redis", url, OPEN)


async def main(peer: str, url: str) -> None:
    """Send requests to the app of a peer; print a line at the start, and the figures at the end."""
    app = _app(peer, url)
    async with lifespan(app) as state:
        print("started", flush=True)
        print(json.dumps(await Load(app, state).measure()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
