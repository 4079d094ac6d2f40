"""How long one iteration of the event loop takes at most."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self


class PauseMonitor:
    """Looks at the clock once in each iteration of the event loop; ``longest`` is the longest iteration, in seconds.

    An iteration counts only as far as the loop's thread had the processor: what else the machine did meanwhile is no
    pause of this program. A call that blocks without using CPU is therefore not seen. The loop never sleeps meanwhile.
    """

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._wall, self._cpu = time.perf_counter(), time.thread_time()
        self._next = self._loop.call_soon(self._iterate)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._next.cancel()
        self._record()

    def _iterate(self) -> None:
        self._record()
        self._next = self._loop.call_soon(self._iterate)

    def _record(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        self.longest = max(self.longest, min(wall - self._wall, cpu - self._cpu))
        self._wall, self._cpu = wall, cpu
