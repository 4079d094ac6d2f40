"""Where the time goes in process, by function: ``scripts/bench --profile memory|redis|flood``."""

from __future__ import annotations

import cProfile
import pstats
from contextlib import ExitStack

import uvloop

from tests.redis_server import RedisServer

from .asker import Asker
from .lifespan import lifespan
from .parts.flood import QUOTA as REFUSED
from .subject import OPEN, PEERS, Quota, Where

AT_ONCE = 64
REQUESTS = 50_000
LINES = 35
CASES: dict[str, tuple[Where, Quota]] = {
    "memory": ("memory", OPEN),
    "redis": ("redis", OPEN),
    "flood": ("redis", REFUSED),
}


def profile(case: str, peer: str, clients: int) -> None:
    """Print the CPU for each request, and then what each function has of it, in the profiler's slower time."""
    where, quota = CASES[case]
    with ExitStack() as stack:
        url = stack.enter_context(RedisServer()).url if where == "redis" else ""
        profiler = uvloop.run(_measure(peer, where, url, quota, 1 if case == "flood" else clients))
    _print(pstats.Stats(profiler))


async def _measure(peer: str, where: Where, url: str, quota: Quota, clients: int) -> cProfile.Profile:
    app = PEERS[peer].build(where, url, quota)
    async with lifespan(app) as state:
        asker = Asker(app, state)
        answer = await asker.burst(REQUESTS, AT_ONCE, clients, warm=REQUESTS // 10)
        print(f"{peer} {where}: {answer['cpu'] / REQUESTS * 1e6:.1f} µs of CPU a request, {AT_ONCE} at once")
        profiler = cProfile.Profile()
        profiler.enable()
        await asker.burst(REQUESTS, AT_ONCE, clients)
        profiler.disable()
    return profiler


def _print(stats: pstats.Stats) -> None:
    found = sorted(stats.stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]  # not in its stub
    print(f"{'own µs':>8} {'with calls':>10} {'calls':>7}  for each request, in the profiler's time")
    for (file, line, name), (_, calls, own, total, _) in found[:LINES]:
        where = f"{'/'.join(file.split('/')[-3:])}:{line}" if line else file
        print(f"{own / REQUESTS * 1e6:8.2f} {total / REQUESTS * 1e6:10.2f} {calls / REQUESTS:7.2f}  {name}  {where}")
