"""How long the event loop is busy without a break."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

INTERVAL = 0.001
"""Seconds that the monitor sleeps."""


class PauseMonitor:
    """A task that sleeps for a millisecond again and again; ``longest`` is the most that it overslept, in seconds.

    A pause counts only as far as the loop's thread had the processor: what else the machine did meanwhile is no pause
    of this program. A call that blocks without using CPU is therefore not seen.
    """

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._task.cancel()
        self._record()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self._record()

    def _record(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        self.longest = max(self.longest, min(wall - self._wall - INTERVAL, cpu - self._cpu))
        self._wall, self._cpu = wall, cpu
