"""Programs that make paced calls over one Redis, by tasks on two event loops and by threads; for tests of many at once.

As a program: URL, quota, start and end in Unix time, and how many tasks on each loop, and threads, there shall be.
It prints one line for each call: what made it, its slot, and when it began.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread

from asgi_ratelimit import PaceTimeout, RedisStore, Take, parse_quotas
from asgi_ratelimit._pacing import Turns, run_async, run_sync
from asgi_ratelimit.decision import Charge
from tests.server import ROOT

START_WITHIN = 1.0
"""Seconds in which a process should be up."""


@dataclass(frozen=True, slots=True)
class Call:
    """What made a call, the time of its slot, and when it began, in Unix time."""

    kind: str
    ready_at: float
    start: float


def run_callers(url: str, quota: str, *, seconds: float, processes: int, tasks: int, threads: int) -> list[Call]:
    """The calls that several processes make in that time."""
    start = time.time() + START_WITHIN
    arguments = (url, quota, repr(start), repr(start + seconds), str(tasks), str(threads))
    command = (sys.executable, "-W", "error", "-m", "tests.callers", *arguments)
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    outputs = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0] * processes
    return [call for output in outputs for call in _parsed(output)]


def _parsed(output: str) -> Iterator[Call]:
    for line in output.splitlines():
        kind, ready_at, start = line.split("\t")
        yield Call(kind, float(ready_at), float(start))


class Callers:
    """The callers of one process, and the calls that they have made."""

    def __init__(self, url: str, quota: str, start: float, end: float) -> None:
        self.turns = Turns(RedisStore(url, timeout=30, on_error="deny"))
        self.quota = parse_quotas(quota, default_burst=1)[0]
        self.start, self.end = start, end
        self.calls: list[Call] = []

    def take(self) -> Take:
        """One unit of the one key that all share, before the end."""
        return Take((Charge(self.quota, "key"),), max(self.end - time.time(), 0.0))

    async def tasks(self, count: int, kind: str) -> None:
        """Some tasks on this loop, until the end."""
        await asyncio.sleep(max(self.start - time.time(), 0.0))
        await asyncio.gather(*[self._task(kind) for _ in range(count)])
        await self.turns.store.aclose()

    async def _task(self, kind: str) -> None:
        try:
            while True:
                decision = await run_async(self.turns.wait(self.take()))
                self.calls.append(Call(kind, decision.ready_at, time.time()))
        except PaceTimeout:
            return

    def thread(self) -> None:
        """One thread, until the end."""
        time.sleep(max(self.start - time.time(), 0.0))
        try:
            while True:
                decision = run_sync(self.turns.wait(self.take()))
                self.calls.append(Call("thread", decision.ready_at, time.time()))
        except PaceTimeout:
            return


def main(url: str, quota: str, *numbers: str) -> None:
    """All callers of this process, and what they did."""
    start, end, tasks, threads = map(float, numbers)
    callers = Callers(url, quota, start, end)
    others = [Thread(target=callers.thread) for _ in range(round(threads))]
    if threads:
        others.append(Thread(target=lambda: asyncio.run(callers.tasks(round(tasks), "other loop"))))
    for other in others:
        other.start()
    asyncio.run(callers.tasks(round(tasks), "task"))
    for other in others:
        other.join()
    for call in callers.calls:
        print(call.kind, repr(call.ready_at), repr(call.start), sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
