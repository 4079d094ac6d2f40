"""Work that the background loop does again and again, for as long as somebody needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from ..logs import FailureLog
from ..stores.event_loops import keep
from ..waiting.drivers import background_loop, reset_in_child

EVERY = 0.9
"""Seconds between two runs, so that a change is known everywhere within a second."""

_failures = FailureLog()


class Repeating:
    """The background loop of this process awaits ``run`` again and again, until ``end``, or until it is not needed.

    It is done there whichever event loop or thread needs it, so that it outlives any of them. It is done by timers and
    short tasks: unlike a task that sleeps, nobody complains of them when a process ends. ``close`` closes what the work
    has opened there.
    """

    is_running = False
    """Whether it was started, and has not ended."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self.stop()
        reset_in_child(self)

    @property
    def is_needed(self) -> bool:
        """Whether the work has to begin, or to go on."""
        raise NotImplementedError

    async def run(self) -> float:
        """Do the work once; return the seconds until the next time."""
        raise NotImplementedError

    async def run_last(self) -> None:
        """Do what is left when the work ends."""

    def start(self) -> None:
        """Begin, unless the work is done already, or not needed. Thread-safe."""
        if self.is_needed and not self.is_running:
            self.is_running = True
            background_loop.loop().call_soon_threadsafe(self._schedule, 0.0, context=Context())

    async def end(self) -> None:
        """Return when the work has ended and closed what it opened; it can be started again."""
        if self.is_running:
            await asyncio.wrap_future(background_loop.start(self._end()))

    def stop(self) -> None:
        """Forget the work, of which a forked child has this object, but not the thread that does it."""
        self.is_running = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    def reset(self) -> None:
        """Start afresh in a forked child."""
        self.stop()
        self.start()

    async def _end(self) -> None:
        self.is_running = False
        async with self._turn:  # what is under way comes to its end
            await self.run_last()
            if not self.is_running:  # nobody has started it again
                await self._close()

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:  # of a start by another thread, or before the work ended
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: keep(None, loop.create_task(self._run())))

    async def _run(self) -> None:
        seconds, self._timer = EVERY, None
        async with self._turn:
            if self.is_running and not self.is_needed:
                self.is_running = False
                await self._close()
            if not self.is_running:
                return
            try:
                seconds = await self.run()
            except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
                _failures.report("what is done in the background failed", error)
        if self.is_running and self._timer is None:  # otherwise it was started again meanwhile
            self._schedule(seconds)
