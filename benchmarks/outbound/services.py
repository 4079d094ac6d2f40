"""Services that count for themselves: what they refuse of each peer's calls, and the part of their rate that is used.

Each peer is set up for the quota that the service has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any

from tests.stand_ins.counting_server import counting_server
from tests.support.redis_server import RedisServer

from .counted_calls import call_async, call_from_processes, counts_of
from .peers import WITHIN


def ours_for(quota: str) -> Callable[[Any], Any]:
    """``pace`` with a quota."""
    from asgi_ratelimit import pace

    return pace(quota)


def aiolimiter_for(limit: int, period: float) -> Callable[[Any], Any]:
    """The limiter that allows ``limit`` calls at once, and as many for each period."""
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(limit, period)
    return _around(limiter.acquire)


def pyrate_for(limit: int, milliseconds: int) -> Callable[[Any], Any]:
    """The limiter that keeps a log of the last calls."""
    from pyrate_limiter import Limiter, Rate

    limiter = Limiter(Rate(limit, milliseconds))
    return _around(lambda: limiter.try_acquire_async("key"))


def steindamm_for(limit: int, period: float) -> Callable[[Any], Any]:
    """The bucket of ``limit`` tokens that fills once a period."""
    from steindamm import AsyncLocalTokenBucket

    settings = {"capacity": limit, "refill_frequency": period / limit, "refill_amount": 1, "max_sleep": 0}
    name = f"for {next(_numbers)}"

    async def acquire() -> None:
        async with AsyncLocalTokenBucket(name=name, **settings):
            pass

    return _around(acquire)


_numbers = count()


def _around(acquire: Callable[[], Awaitable[Any]]) -> Callable[[Any], Any]:
    def decorate(function: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def call() -> None:
            await acquire()
            await function()

        return call

    return decorate


Limit = tuple[str, int, float, dict[str, float], float]
"""A service: its kind, limit and period, its other settings, and the seconds that its calls take at least."""

CALLS = 200
SERVICES: dict[str, tuple[Limit, dict[str, Callable[[], Callable[[Any], Any]]]]] = {
    "bucket, burst 50": (
        ("bucket", 50, 1.0, {"burst": 50}, (CALLS - 50) / 50),
        {
            "ours": lambda: ours_for("50/s burst 50"),
            "aiolimiter": lambda: aiolimiter_for(50, 1),
            "pyrate-limiter": lambda: pyrate_for(50, 1000),
            "steindamm": lambda: steindamm_for(50, 1.0),
        },
    ),
    "spaced, 2 ms": (
        ("spaced", 50, 1.0, {"tolerance": 2}, (CALLS - 1) / 50),
        {
            "ours": lambda: ours_for("50/s"),
            "aiolimiter": lambda: aiolimiter_for(1, 1 / 50),
            "pyrate-limiter": lambda: pyrate_for(1, 20),
            "steindamm": lambda: steindamm_for(1, 1 / 50),
        },
    ),
    "fixed, 50 in 5 s": (
        ("fixed", 50, 5.0, {}, 15.0),
        {
            "ours": lambda: ours_for("50 per 5 seconds fixed"),
            "aiolimiter": lambda: aiolimiter_for(50, 5),
            "pyrate-limiter": lambda: pyrate_for(50, 5000),
            "steindamm": lambda: steindamm_for(50, 5.0),
        },
    ),
    "rolling, 50 in 5 s": (
        ("rolling", 50, 5.0, {}, 15.0),
        {
            "ours": lambda: ours_for("50 per 5 seconds rolling"),
            "aiolimiter": lambda: aiolimiter_for(50, 5),
            "pyrate-limiter": lambda: pyrate_for(50, 5000),
            "steindamm": lambda: steindamm_for(50, 5.0),
        },
    ),
}
"""Services that count for themselves, and how each peer is told of the limit."""


def table(peers: Iterable[str]) -> list[list[str]]:
    """The calls that each service refuses, and the part of its rate that is used."""
    names = [name for name in ("ours", "aiolimiter", "pyrate-limiter", "steindamm") if name in peers]
    lines = [["200 calls; refused, rate used", *names], ["---", *["---:"] * len(names)]]
    for service, (limit, setups) in SERVICES.items():
        lines.append([service, *[_refused(limit, setups[name]) for name in names]])
        print(*lines[-1], sep="  ", flush=True)
    return lines


def _refused(limit: Limit, decorate: Callable[[], Callable[[Any], Any]]) -> str:
    kind, units, period, settings, least = limit
    with counting_server(kind, units, period, **settings) as server:
        start = time.monotonic()
        try:
            asyncio.run(asyncio.wait_for(call_async(server.url, CALLS, decorate()), 6 * WITHIN))
        except TimeoutError:
            return f">{time.monotonic() - start:.0f}s"
        counts = counts_of(server)
    return f"{counts.refused}, {least / max(counts.seconds, 0.001):.2f}"


def processes(_: Iterable[str] = (), margin: float = 0.02, count: int = 4) -> list[list[str]]:
    """What each service refuses of the calls of several processes that share a Redis, and the part of its rate."""
    lines = [[f"ours, {count} processes, margin {margin}", "refused, rate used"], ["---", "---:"]]
    with RedisServer() as redis:
        for service, ((kind, units, period, settings, least), _) in SERVICES.items():
            redis.flush()
            quota = {"bucket": "50/s burst 50", "spaced": "50/s"}.get(kind, f"{units} per {period:.0f} seconds {kind}")
            with counting_server(kind, units, period, **settings) as server:
                call_from_processes(server, redis.url, quota, margin, CALLS, count)
                counts = counts_of(server)
            lines.append([service, f"{counts.refused}, {least / max(counts.seconds, 0.001):.2f}"])
            print(*lines[-1], sep="  ", flush=True)
    return lines
