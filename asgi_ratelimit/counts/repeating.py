"""Work that the background loop does again and again, for as long as somebody needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeAlias
from weakref import ref

from ..logs import FailureLog
from ..stores.event_loops import keep
from ..waiting import background_loop, reset_in_child

EVERY = 0.9
"""Seconds between two runs, so that a change is known everywhere within a second."""

Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_failures = FailureLog()


class Repeating:
    """The background loop of this process awaits ``run`` again and again, until ``end``, or until this object is gone.

    It is done there whichever event loop or thread needs it, so that it outlives any of them. It is done by timers and
    short tasks: unlike a task that sleeps, nobody complains of them when a process ends. ``close`` closes what the work
    has opened there. It must not refer to this object.
    """

    first_after = 0.0
    """Seconds until the first run."""

    is_running = False
    """Whether it was started, and has not ended."""

    def __init__(self, close: Close) -> None:
        self._close = close
        self.stop()
        reset_in_child(self)

    @property
    def is_needed(self) -> bool:
        """Whether the work has to begin."""
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
            background_loop.loop().call_soon_threadsafe(self._schedule, self.first_after, context=Context())

    async def end(self) -> None:
        """Return when the work has ended and closed what it opened; it can be started again."""
        if self.is_running:
            await asyncio.wrap_future(background_loop.start(self._end()))

    def stop(self) -> None:
        """Forget the work, of which a forked child has this object, but not the thread that does it."""
        self.is_running = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Start afresh in a forked child."""
        self.stop()
        self.start()

    async def _end(self) -> None:
        task, self._task, self.is_running = self._task, None, False
        if task is not None:
            await asyncio.wait([task])
        await self.run_last()
        if not self.is_running:  # nobody has started it again
            await self._close()

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:  # of a start by another thread, or before the work ended
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, _begin_run, ref(self), self._close)

    async def _run(self) -> None:
        seconds = EVERY
        try:
            seconds = await self.run()
        except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
            _failures.report("what is done in the background failed", error)
        if self._task is asyncio.current_task():  # otherwise it has ended, and may have been started again
            self._schedule(seconds)


def _begin_run(reference: ref[Repeating], close: Close) -> None:
    """Run it again, or close what it has opened if it is gone."""
    loop, repeating = asyncio.get_running_loop(), reference()
    if repeating is None:
        keep(None, loop.create_task(close()))
    elif repeating.is_running:
        repeating._task = loop.create_task(repeating._run())
