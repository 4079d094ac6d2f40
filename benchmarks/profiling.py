"""Where the time goes in process, by function: ``scripts/bench --profile memory|redis|single|flood``."""

from __future__ import annotations

import cProfile
import pstats
from contextlib import ExitStack
from dataclasses import dataclass

import uvloop
from starlette.types import ASGIApp

from tests.support.redis_server import RedisServer

from .apps import shapes
from .parts.flood import QUOTA as REFUSED
from .processes.direct_client import DirectClient
from .processes.lifespan import lifespan
from .subject import OPEN, PEERS, Quota, Where

REQUESTS = 30_000
ROWS = 35


@dataclass(frozen=True, slots=True)
class Case:
    """Requests under a quota over a store, ``at_once`` of them under way."""

    where: Where
    at_once: int = 64
    quota: Quota = OPEN


CASES = {
    "memory": Case("memory"),
    "redis": Case("redis"),
    "single": Case("redis", 1),
    "flood": Case("redis", 64, REFUSED),
}


def profile(case: Case, peer: str, shape: str, clients: int) -> None:
    """Print the CPU time of a request, then that of each function, which the profiler slows down.

    Without a ``shape`` of use, there is a single quota.
    """
    with ExitStack() as stack:
        url = stack.enter_context(RedisServer()).url if case.where == "redis" else ""
        if shape:
            app = shapes.build(peer, shapes.Case(shape, case.where, url, case.quota.limit))
        else:
            app = PEERS[peer].build(case.where, url, case.quota)
        profiler = uvloop.run(_measure(app, case.at_once, 1 if case.quota is REFUSED else clients))
    _print(pstats.Stats(profiler))


async def _measure(app: ASGIApp, at_once: int, clients: int) -> cProfile.Profile:
    async with lifespan(app) as state:
        client = DirectClient(app, state)
        answer = await client.burst(REQUESTS, at_once, clients, warm=REQUESTS // 10)
        print(f"{answer['cpu'] / REQUESTS * 1e6:.1f} µs of CPU a request, {at_once} at once")
        profiler = cProfile.Profile()
        profiler.enable()
        await client.burst(REQUESTS, at_once, clients)
        profiler.disable()
    return profiler


def _print(stats: pstats.Stats) -> None:
    functions = sorted(stats.stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]  # not in its stub
    print(f"{'own µs':>8} {'with calls':>10} {'calls':>7}  for each request, in the profiler's time")
    for (file, line, name), (_, calls, own, total, _) in functions[:ROWS]:
        where = f"{'/'.join(file.split('/')[-3:])}:{line}" if line else file
        print(f"{own / REQUESTS * 1e6:8.2f} {total / REQUESTS * 1e6:10.2f} {calls / REQUESTS:7.2f}  {name}  {where}")
