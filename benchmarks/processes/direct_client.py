"""Requests straight into an app, without a server: nothing but what the app itself costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any, TypeAlias

from starlette.types import ASGIApp, Message, Scope

from .event_loop_pauses import PauseMonitor
from .process_memory import resident_bytes

Address: TypeAlias = tuple[str, int]

SCOPE: Scope = {
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
    "server": ("testserver", 80),
}
"""A GET of /, all but the client and the state."""

YIELD_AFTER = 8
"""Requests after which a visit lets background tasks of a limiter run; yielding costs time, too."""

_SCATTER = 0x9E3779
"""Odd, so that multiplying by it modulo 2**24 gives each number another one."""


def address_of(client: int) -> Address:
    """The address of the ``client``-th client; those of neighbours share only 10.0.0.0/8. Repeats after 2**24."""
    host = client * _SCATTER
    return f"10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}", 50_000


def scope_of(client: Address, state: dict[str, Any]) -> Scope:
    """A GET of / from this address."""
    return {**SCOPE, "client": client, "state": state.copy()}


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


class DirectClient:
    """Sends requests into one app; ``state`` is what its lifespan returned."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._statuses: Counter[str] = Counter()

    async def burst(self, requests: int, at_once: int, clients: int, warm: int = 0) -> dict[str, Any]:
        """Send requests from ``clients`` addresses one after another, ``at_once`` of them under way.

        Returns CPU and wall seconds, and quantiles of the time that a request took. ``warm`` requests go first and are
        not measured: the processor's caches hold the data of other subjects by then.
        """
        addresses = cycle([address_of(client) for client in range(clients)])
        await self._send_timed(addresses, warm, at_once)
        self._statuses.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        times = await self._send_timed(addresses, requests, at_once)
        used = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return {**used, "requests": requests, **quantiles(times), "statuses": dict(self._statuses)}

    async def visit(
        self, first: int, clients: int, at_once: int, times: int = 1, warm: Sequence[int] = (), monitored: bool = False
    ) -> dict[str, Any]:
        """Send one request from each of ``clients`` clients, numbered from ``first``, and all of that some ``times``.

        Returns CPU and wall seconds, and the process memory after it in bytes. If ``monitored``, it also returns the
        longest pause of the event loop in seconds; the CPU time then includes that of the monitor. The clients in
        ``warm`` go first and are not measured.
        """
        await self._send_all([address_of(client) for client in warm], at_once)
        addresses = [address_of(client) for _ in range(times) for client in range(first, first + clients)]
        self._statuses.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        pause = await self._send_monitored(addresses, at_once) if monitored else 0.0
        if not monitored:
            await self._send_all(addresses, at_once)
        used = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "pause": pause}
        return {**used, "requests": len(addresses), "memory": resident_bytes(), "statuses": dict(self._statuses)}

    async def flood(self, seconds: float, each: int, every: float) -> dict[str, Any]:
        """Send ``each`` requests at once ``every`` so many seconds; return when requests were let through."""
        self._statuses.clear()
        start = time.perf_counter()
        passed: list[float] = []
        late = 0

        async def one() -> None:
            if await self._send(address_of(0)) == 200:
                passed.append(time.perf_counter() - start)

        for tick in range(round(seconds / every)):
            wait = start + tick * every - time.perf_counter()
            late += wait < -every
            await asyncio.sleep(max(0, wait))
            await asyncio.gather(*(one() for _ in range(each)))
        used = time.perf_counter() - start
        return {"passed": passed, "late": late, "seconds": used, "statuses": dict(self._statuses)}

    async def _send_timed(self, addresses: Iterator[Address], requests: int, at_once: int) -> list[int]:
        """The nanoseconds that each request took."""
        left = iter(range(requests))
        times = []

        async def loop() -> None:
            for _ in left:
                start = time.perf_counter_ns()
                await self._send(next(addresses))
                times.append(time.perf_counter_ns() - start)

        await asyncio.gather(*(loop() for _ in range(at_once)))
        return times

    async def _send_all(self, addresses: Iterable[Address], at_once: int, yield_after: int = YIELD_AFTER) -> None:
        left = iter(addresses)

        async def loop() -> None:
            for sent, address in enumerate(left, 1):
                await self._send(address)
                if sent % yield_after == 0:
                    await asyncio.sleep(0)

        await asyncio.gather(*(loop() for _ in range(at_once)))

    async def _send_monitored(self, addresses: Iterable[Address], at_once: int) -> float:
        async with PauseMonitor() as monitor:
            await self._send_all(addresses, at_once, yield_after=1)
        return monitor.longest

    async def _send(self, client: Address) -> int:
        """The status of the answer; 0 for an error, which is counted by its text."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        try:
            await self._app(scope_of(client, self._state), receive, send)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            self._statuses[f"{type(error).__name__}: {error}"[:120]] += 1
            return 0
        self._statuses[str(status)] += 1
        return status


def quantiles(times: list[int]) -> dict[str, float]:
    """The median and the 99th percentile, in microseconds."""
    times.sort()
    return {"median_us": times[len(times) // 2] / 1000, "p99_us": times[len(times) * 99 // 100] / 1000}
