"""Programs that make paced calls over one Redis, by tasks on two event loops and by threads; for tests of many at once.

As a program, its arguments are a URL, a quota, seconds, the number of tasks on each loop, and the number of threads. It
prints ``ready``, begins when it reads a line, and prints one line for each call.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from threading import Thread

from asgi_ratelimit import Charge, PaceTimeout, RedisStore, Take, parse_quotas
from asgi_ratelimit.background import background_loop
from asgi_ratelimit.waiting.drivers import run_async, run_sync
from asgi_ratelimit.waiting.waiter import SlotWaiter
from tests.support.children import run_together


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its process, the kind of its caller, its number in the process, its slot and its start in Unix time."""

    process: int
    kind: str
    number: int
    ready_at: float
    start: float


def run_callers(url: str, quota: str, *, seconds: float, processes: int, tasks: int, threads: int) -> list[Call]:
    """The calls that several processes make in ``seconds``."""
    command = ("-m", "tests.support.callers", url, quota, str(seconds), str(tasks), str(threads))
    outputs = run_together([command] * processes, "begin", within=seconds + 60)
    return [call for process, output in enumerate(outputs) for call in _parsed(process, output)]


def _parsed(process: int, output: str) -> Iterator[Call]:
    for line in output.splitlines():
        kind, number, ready_at, start = line.split("\t")
        yield Call(process, kind, int(number), float(ready_at), float(start))


class Callers:
    """The callers of one process, and their calls."""

    def __init__(self, url: str, quota: str) -> None:
        self.waiter = SlotWaiter(RedisStore(url, timeout=30, on_error="deny"))
        self.quota = parse_quotas(quota, default_burst=1)[0]
        self.end = 0.0
        self.calls: list[tuple[str, int, float, float]] = []
        self._numbers = count()

    def take(self) -> Take:
        """One unit of the shared key, before the end."""
        return Take((Charge(self.quota, "key"),), max(self.end - time.time(), 0.0))

    async def tasks(self, count: int, kind: str) -> None:
        """Run tasks on this loop until the end."""
        await asyncio.gather(*[self._task(kind) for _ in range(count)])
        await self.waiter.store.aclose()

    async def _task(self, kind: str) -> None:
        try:
            while time.time() < self.end:
                number = next(self._numbers)
                decision = await run_async(self.waiter.wait(self.take()))
                self.calls.append((kind, number, decision.ready_at, time.time()))
        except PaceTimeout:
            return

    def thread(self) -> None:
        """Run one thread until the end."""
        try:
            while time.time() < self.end:
                number = next(self._numbers)
                decision = run_sync(self.waiter.wait(self.take()))
                self.calls.append(("thread", number, decision.ready_at, time.time()))
        except PaceTimeout:
            return


def main(url: str, quota: str, *numbers: str) -> None:
    """Run all callers of this process, and print their calls."""
    seconds, tasks, threads = float(numbers[0]), int(numbers[1]), int(numbers[2])
    callers = Callers(url, quota)
    print("ready", flush=True)
    sys.stdin.readline()
    callers.end = time.time() + seconds
    others = [Thread(target=callers.thread) for _ in range(threads)]
    if threads:
        others.append(Thread(target=lambda: asyncio.run(callers.tasks(tasks, "other loop"))))
    for other in others:
        other.start()
    asyncio.run(callers.tasks(tasks, "task"))
    for other in others:
        other.join()
    background_loop.run(callers.waiter.store.aclose())
    for call in callers.calls:
        print(*call, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
