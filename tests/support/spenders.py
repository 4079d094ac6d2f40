"""Programs that spend over one Redis: blocks that take an estimate, and settle much less a while later.

As a program, its arguments are a URL, a quota, seconds and the number of tasks. It prints ``ready``, begins when it
reads a line, and prints for each block the time of the server at which it was entered, in microseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

from asgi_ratelimit import Limiter, PaceTimeout, RedisStore
from tests.support.children import run_together

ESTIMATE, ACTUAL = 1500, 313
LASTS = 0.5
"""Seconds that a block lasts."""


def run_spenders(url: str, quota: str, *, seconds: float, processes: int, tasks: int) -> list[list[float]]:
    """The times at which blocks were entered, for each process."""
    command = ("-m", "tests.support.spenders", url, quota, str(seconds), str(tasks))
    outputs = run_together([command] * processes, "begin", within=seconds + 60)
    return [list(map(float, output.split())) for output in outputs]


class Spenders:
    """The callers of one process, and when they entered their blocks."""

    def __init__(self, url: str, quota: str) -> None:
        self._limiter = Limiter(quota, store=RedisStore(url, timeout=30, on_error="deny"))
        self.times_us: list[float] = []

    async def run(self, seconds: float, tasks: int) -> None:
        """Spend until the time is over."""
        end = time.time() + seconds
        async with self._limiter:
            await asyncio.gather(*[self._spend(end) for _ in range(tasks)])

    async def _spend(self, end: float) -> None:
        try:
            while (left := end - time.time()) > 0:
                async with self._limiter.spend("key", ESTIMATE, max_delay=left) as spent:
                    spent.settle(ACTUAL)
                    self.times_us.append(spent.decision.now_us)
                    await asyncio.sleep(LASTS)
        except PaceTimeout:
            return


def main(url: str, quota: str, seconds: str, tasks: str) -> None:
    """Run all callers of this process, and print the times."""
    spenders = Spenders(url, quota)
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(spenders.run(float(seconds), int(tasks)))
    print(*spenders.times_us, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
