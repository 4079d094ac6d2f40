"""A Redis that freezes for two seconds under load: what becomes of the requests, and of the event loop.

``python -m benchmarks.parts.outage PEER URL`` is the process that asks, whose app this part looks at. Ours has its
default settings here, a deadline of a quarter of a second and a local limiter in place of Redis.
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

from asgi_ratelimit import RateLimitMiddleware, RedisStore
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

from ..apps import starlette_app
from ..asker import receive, scope_of
from ..lifespan import lifespan
from ..plan import Plan
from ..redis_stats import RedisStats
from ..results import Column, Part, Row, unexpected
from ..runner import Runner
from ..subject import OPEN, PEERS

EACH, EVERY = 2, 0.01
"""Requests at once, and the seconds between, whatever becomes of them."""
CLIENTS = 50
BEFORE, FROZEN, BACK, AFTER = 1.0, 2.0, 1.0, 1.0
"""Seconds: until it freezes, while it is frozen, until it should be well again, and while that is looked at."""
ALIKE = ("ours_no_headers", "ours_fastapi")
"""What would do as ours does."""
WARM = 0.5
"""Seconds after which the gaps of the event loop count: at first there is much to be imported."""
SETTLED = 30.0
"""Seconds that the last requests are waited for."""

COLUMNS = {
    "requests": Column("requests"),
    "wrong": Column("not answered with 200"),
    "slowest": Column("slowest answer ms", 0, "less"),
    "gap": Column("longest gap of the event loop ms"),
    "after": Column("slowest from 1 s after it ms"),
    "scripts": Column("EVALs in the second after that"),
}


def run(runners: Sequence[Runner], plan: Plan) -> list[Part]:
    asked = [runner for runner in runners if runner.subject.where == "redis" and runner.subject.peer.name not in ALIKE]
    rows = [_row(runner) for runner in asked]
    return [Part("outage", "Redis freezes for two seconds, at 200 requests a second", COLUMNS, rows)]


def _row(runner: Runner) -> Row:
    row = Row(runner.subject)
    with RedisServer() as server:
        command = (sys.executable, "-m", "benchmarks.parts.outage", runner.subject.peer.name, server.url)
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as asking:
            assert asking.stdout
            asking.stdout.readline()  # it has begun
            row.figures["scripts"] = _freeze(server)
            said = asking.stdout.readline()
    if not said:
        row.error = "it ended without a word"
        return row
    answer = json.loads(said)
    row.error = unexpected(answer.pop("statuses"), ("200",))
    row.figures |= answer
    return row


def _freeze(server: RedisServer) -> int:
    """Freeze it for a while; how often a script was called in the second after it should have been well again."""
    stats = RedisStats(server)
    time.sleep(BEFORE)
    server.pause()
    time.sleep(FROZEN)
    server.resume()
    time.sleep(BACK)
    before = stats.work()
    time.sleep(AFTER)
    return stats.work_since(before).scripts


class Load:
    """Requests that come whatever becomes of those before them."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._statuses: Counter[str] = Counter()
        self._times: list[tuple[float, float]] = []

    async def measure(self) -> dict[str, Any]:
        """What came of it, in milliseconds."""
        start = last = time.perf_counter()
        gap, under_way = 0.0, set()
        while last - start < BEFORE + FROZEN + BACK + AFTER:
            for number in range(EACH):
                task = asyncio.create_task(self._ask(len(self._times) + number, last - start))
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

    async def _ask(self, number: int, began: float) -> None:
        status, start = "no answer", time.perf_counter()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])

        try:
            await self._app({**scope_of(number % CLIENTS), "state": self._state.copy()}, receive, send)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            status = f"{type(error).__name__}: {error}"[:120]
        self._statuses[status] += 1
        self._times.append((began, time.perf_counter() - start))


def _app(peer: str, url: str) -> ASGIApp:
    if peer == "ours":
        return starlette_app(Middleware(RateLimitMiddleware, str(OPEN), store=RedisStore(url)))
    return PEERS[peer].build("redis", url, OPEN)


async def main(peer: str, url: str) -> None:
    """Ask the app of a peer; say when that begins, and what has come of it."""
    app = _app(peer, url)
    async with lifespan(app) as state:
        print("asking", flush=True)
        print(json.dumps(await Load(app, state).measure()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
