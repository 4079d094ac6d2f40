"""Work that an event loop does again and again, for as long as somebody needs it."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, _get_running_loop
from collections.abc import Callable, Coroutine
from contextvars import Context
from threading import RLock
from typing import Any, TypeAlias
from weakref import ref

from ..logs import FailureLog

EVERY = 0.9
"""Seconds between two runs, so that a change is known everywhere within a second."""

Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_failures = FailureLog()
_closing: set[asyncio.Task[None]] = set()


class Ticker:
    """An event loop awaits ``run`` again and again, until ``end``, or until nobody refers to this object.

    It does so by timers and short tasks: unlike a task that sleeps, they are no complaint of an event loop that ends.
    ``close`` closes what the work has opened there. It must not refer to this object.
    """

    def __init__(self, close: Close) -> None:
        self._close = close
        self._is_lasting = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin without an event loop: a forked child has this object, but not the thread that does the work."""
        self._lock = RLock()
        self._loop: AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> float:
        """Do the work once; return the seconds until the next time."""
        raise NotImplementedError

    async def run_last(self) -> None:
        """Do what is left when the work ends."""

    @property
    def is_running(self) -> bool:
        """Whether an event loop does the work, and has not ended."""
        loop = self._loop
        return loop is not None and not loop.is_closed() and (self._is_lasting or loop.is_running())

    def start_on(self, loop: AbstractEventLoop, seconds: float = 0.0, *, is_lasting: bool) -> None:
        """Begin in so many seconds, unless the work is done already; a lasting loop runs until the program ends."""
        with self._lock:
            if self.is_running:
                return
            self._loop, self._is_lasting = loop, is_lasting
        loop.call_soon_threadsafe(self._schedule, loop, seconds, context=Context())

    async def end(self) -> None:
        """Return when the work has ended and closed what it opened; it can be started again."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if loop is not _get_running_loop():
            if self._is_lasting:  # any other one may end before it has done this
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.end(), loop))
            return
        task, self._loop, self._task = self._task, None, None
        if self._timer is not None:
            self._timer.cancel()
        if task is not None:
            await asyncio.wait([task])
        await self.run_last()
        if self._loop is None and self._is_lasting:  # nobody has started it again, nor does anybody else use this loop
            await self._close()

    def _schedule(self, loop: AbstractEventLoop, seconds: float) -> None:
        if self._loop is loop:  # otherwise another one has taken over
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, _tick, ref(self), loop, self._close)

    async def _run(self, loop: AbstractEventLoop) -> None:
        seconds = EVERY
        try:
            seconds = await self.run()
        except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
            _failures.report("what is done in the background failed", error)
        if self._task is asyncio.current_task():  # otherwise it has ended, and may have been started again
            self._schedule(loop, seconds)


def _tick(reference: ref[Ticker], loop: AbstractEventLoop, close: Close) -> None:
    ticker = reference()
    if ticker is None:
        task = loop.create_task(close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)
    elif ticker._loop is loop:
        ticker._task = loop.create_task(ticker._run(loop))
