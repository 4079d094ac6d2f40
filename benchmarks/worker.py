"""A child process with one app in it, which does rounds of requests on command: ``python -m benchmarks.worker``.

Commands come on stdin and answers go to stdout, a line of JSON each. A subject alone in its process is measured with
all its threads, and when it hangs or breaks, it does so alone.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import cycle
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from .lifespan import lifespan
from .subject import Quota, peer

Answer = dict[str, Any]


def scope_of(client: int) -> Scope:
    """A GET of / from the ``client``-th address."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"testserver"), (b"user-agent", b"bench"), (b"accept", b"*/*")],
        "client": (f"10.{client >> 16 & 255}.{client >> 8 & 255}.{client & 255}", 50_000),
        "server": ("testserver", 80),
    }


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


class Worker:
    """The rounds over one app."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self.app = app
        self.state = state
        self.statuses: Counter[str] = Counter()

    async def ask(self, scope: Scope) -> int:
        """The status of the answer; 0 for an error, which is counted by its text."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        try:
            await self.app({**scope, "state": self.state.copy()}, receive, send)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            self.statuses[f"{type(error).__name__}: {error}"[:120]] += 1
            return 0
        self.statuses[str(status)] += 1
        return status

    async def burst(self, requests: int, at_once: int, clients: int) -> Answer:
        """As many requests, ``at_once`` of them under way: the CPU and wall seconds, and times if one at a time."""
        scopes = cycle([scope_of(client) for client in range(clients)])
        left = iter(range(requests))
        times: list[int] = []

        async def loop() -> None:
            for _ in left:
                await self.ask(next(scopes))

        async def timed_loop() -> None:
            for _ in left:
                start = time.perf_counter_ns()
                await self.ask(next(scopes))
                times.append(time.perf_counter_ns() - start)

        kind = timed_loop if at_once == 1 else loop
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(kind() for _ in range(at_once)))
        used = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return {**used, "requests": requests, **quantiles(times)}

    async def flood(self, seconds: float, each: int, every: float) -> Answer:
        """``each`` requests at once ``every`` so many seconds: when some were let through, from the start."""
        start = time.perf_counter()
        passed: list[float] = []
        late = 0

        async def one() -> None:
            if await self.ask(scope_of(0)) == 200:
                passed.append(time.perf_counter() - start)

        for tick in range(round(seconds / every)):
            wait = start + tick * every - time.perf_counter()
            late += wait < -every
            await asyncio.sleep(max(0, wait))
            await asyncio.gather(*(one() for _ in range(each)))
        return {"passed": passed, "late": late, "seconds": time.perf_counter() - start}

    async def answer(self, do: str, **arguments: Any) -> Answer:
        self.statuses.clear()
        verbs: dict[str, Callable[..., Any]] = {"burst": self.burst, "flood": self.flood}
        answer: Answer = await verbs[do](**arguments)
        return {**answer, "statuses": dict(self.statuses)}


def quantiles(times: list[int]) -> dict[str, float]:
    """The median and the 99th percentile, in microseconds."""
    if not times:
        return {}
    times.sort()
    return {"median_us": times[len(times) // 2] / 1000, "p99_us": times[len(times) * 99 // 100] / 1000}


async def serve(name: str, where: Any, url: str, limit: str, period: Any) -> None:
    """Answer commands until stdin ends. What the app prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    app: ASGIApp = peer(name).build(where, url, Quota(int(limit), period))
    running: AbstractAsyncContextManager[dict[str, Any]] = lifespan(app)
    async with running as state:
        worker = Worker(app, state)
        print(json.dumps({}), file=out)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await worker.answer(**json.loads(line))), file=out)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
