"""Work that is done again and again on the background loop, for as long as somebody needs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import RLock
from typing import Any, TypeAlias
from weakref import ref

from ..logs import FailureLog
from ..waiting import background_loop
from ..waiting.background_loop import reset_in_child

EVERY = 0.9
"""Seconds between two runs, so that a change is known everywhere within a second."""

_failures = FailureLog()

Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Repeating:
    """Work that ``run`` does, from ``start`` until it is no longer needed, or until nobody refers to this object.

    It runs on the background loop, whichever event loop or thread needs it, so that it lives longer than any of them.
    ``close`` closes what the work has opened there. It must not refer to this object.
    """

    def __init__(self, close: Close) -> None:
        self._lock = RLock()
        self._close = close
        self._wake_up: asyncio.Event | None = None
        self._running: Future[None] | None = None
        self._needed_again: list[Future[None]] = []
        reset_in_child(self)

    @property
    def is_needed(self) -> bool:
        """Whether the work has to go on."""
        raise NotImplementedError

    async def run(self) -> float:
        """Do the work once; return the seconds until the next time."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin, unless the work is running or not needed. Thread-safe."""
        with self._lock:
            if self._running is None and self.is_needed:
                self._wake_up = asyncio.Event()
                self._running = background_loop.start(_run(ref(self), self._wake_up, self._close))

    async def end(self) -> None:
        """Wait until the work has ended, if it is no longer needed; or until somebody needs it again."""
        needed_again: Future[None] = Future()
        with self._lock:
            running, wake_up = self._running, self._wake_up
            if running is None or wake_up is None:
                return
            self._needed_again.append(needed_again)
        background_loop.call_soon(wake_up.set)
        either = map(asyncio.wrap_future, (running, needed_again))
        await asyncio.wait(list(either), return_when=asyncio.FIRST_COMPLETED)

    def reset(self) -> None:
        """Start afresh in a forked child, which has this object, but not the thread in which it runs."""
        self._lock = RLock()
        was_running, self._running, self._needed_again = self._running is not None, None, []
        if was_running:
            self.start()

    def end_unless_needed(self) -> bool:
        """End the work unless it is still needed; return whether it has ended, and has to be started again."""
        with self._lock:
            needed_again, self._needed_again = self._needed_again, []
            if not self.is_needed:
                self._running = None
        if self._running is not None:
            for each in needed_again:
                each.set_result(None)
        return self._running is None


async def _run(reference: ref[Repeating], wake_up: asyncio.Event, close: Close) -> None:
    seconds: float | None = 0.0
    try:
        while seconds is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await wake_up.wait()
            wake_up.clear()
            seconds = await _run_once(reference)
    finally:
        await close()


async def _run_once(reference: ref[Repeating]) -> float | None:
    """The seconds until the next time; ``None`` if there is none. No reference outlives the call."""
    repeating = reference()
    if repeating is None or repeating.end_unless_needed():
        return None
    try:
        return await repeating.run()
    except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
        _failures.report("what is done in the background failed", error)
        return EVERY
