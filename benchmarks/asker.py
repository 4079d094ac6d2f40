"""Requests straight into an app, without a server or a client: nothing but what the app itself costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from starlette.types import ASGIApp, Message, Scope


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


class Asker:
    """Asks one app, whose lifespan gave ``state``."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._statuses: Counter[str] = Counter()

    async def burst(self, requests: int, at_once: int, clients: int, warm: int = 0) -> dict[str, Any]:
        """As many requests, ``at_once`` of them under way: the CPU and wall seconds, and how long one took.

        ``warm`` are asked before the clock starts: the last rounds on this machine were of others.
        """
        scopes = cycle([scope_of(client) for client in range(clients)])
        await self._ask_all(scopes, warm, at_once)
        self._statuses.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        times = await self._ask_all(scopes, requests, at_once)
        used = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return {**used, "requests": requests, **quantiles(times), "statuses": dict(self._statuses)}

    async def flood(self, seconds: float, each: int, every: float) -> dict[str, Any]:
        """``each`` requests at once ``every`` so many seconds: when some were let through, from the start."""
        self._statuses.clear()
        start = time.perf_counter()
        passed: list[float] = []
        late = 0

        async def one() -> None:
            if await self._ask(scope_of(0)) == 200:
                passed.append(time.perf_counter() - start)

        for tick in range(round(seconds / every)):
            wait = start + tick * every - time.perf_counter()
            late += wait < -every
            await asyncio.sleep(max(0, wait))
            await asyncio.gather(*(one() for _ in range(each)))
        used = time.perf_counter() - start
        return {"passed": passed, "late": late, "seconds": used, "statuses": dict(self._statuses)}

    async def _ask_all(self, scopes: Iterator[Scope], requests: int, at_once: int) -> list[int]:
        """The nanoseconds that each took."""
        left = iter(range(requests))
        times = []

        async def loop() -> None:
            for _ in left:
                start = time.perf_counter_ns()
                await self._ask(next(scopes))
                times.append(time.perf_counter_ns() - start)

        await asyncio.gather(*(loop() for _ in range(at_once)))
        return times

    async def _ask(self, scope: Scope) -> int:
        """The status of the answer; 0 for an error, which is counted by its text."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        try:
            await self._app({**scope, "state": self._state.copy()}, receive, send)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            self._statuses[f"{type(error).__name__}: {error}"[:120]] += 1
            return 0
        self._statuses[str(status)] += 1
        return status


def quantiles(times: list[int]) -> dict[str, float]:
    """The median and the 99th percentile, in microseconds."""
    times.sort()
    return {"median_us": times[len(times) // 2] / 1000, "p99_us": times[len(times) * 99 // 100] / 1000}
