"""Exact timers for event loops, whose own timers are rounded up to whole milliseconds, which lowers the rate of calls.

On Linux, each event loop gets one timer of the system that is a file (a timerfd), set to the earliest time that any
waiter of the loop sleeps until: when it becomes readable, the loop wakes, and the task runs at once. On other systems,
the loop's own timers have to suffice.

(Two alternatives are worse. Waking early and sleeping for the rest of the millisecond blocks the loop. A thread that
sleeps and calls the loop costs more, and is no more exact while the loop is busy.)
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import cache, partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from struct import Struct
from typing import Any, Protocol, TypeAlias
from weakref import ReferenceType, ref

from ..clock import elapsed_ns

ABSOLUTE = 1
"""``TFD_TIMER_ABSTIME``: the time is absolute on the clock, not relative to now."""

LATEST_NS = 2**62
"""A time in 146 years; Python's function takes no numbers of more than 64 bits."""

FEW = 64
"""This many cancelled timers are kept until their time. Beyond that, all are dropped once they outnumber the live
ones."""


EARLY_US, SOONER_US, LATER_US = 250.0, 0.5, 20.0
"""The file is set to a time earlier by as much as the loop needs to wake: at most 250 microseconds. This lead grows by
half a microsecond for each timer that was not early, and shrinks by twenty for each that was, so one in 41 is early."""


class TaskSleep(asyncio.Future[Any]):
    """The future of a task that sleeps. ``resume`` runs the task at once, and not in the loop's next iteration."""

    __slots__ = ("_context", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Called by the task when it begins to await this future."""
        if self._wake is None and context is not None:
            self._wake, self._context = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the sleep: the task runs in the loop's next iteration, as with any other future."""
        if not super().cancel(msg):
            return False
        self._wake_soon()
        return True

    def set_result(self, result: Any, /) -> None:
        """Set the result: the task runs in the loop's next iteration."""
        super().set_result(result)
        self._wake_soon()

    def resume(self, result: Any) -> None:
        """Run the task now, from a callback of the loop, where no other task runs."""
        _set_result(self, result)
        wake, self._wake = self._wake, None
        if wake is not None and self._context is not None:
            self._context.run(wake, self)

    def _wake_soon(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            self.get_loop().call_soon(wake, self, context=self._context)


_set_result = asyncio.Future.set_result


class Ringing(Protocol):
    """An object with a timer for ``at_us``: ``timer`` is its number, or 0 while it has none."""

    at_us: float
    timer: int
    sleeping: TaskSleep | None
    """The future that its task awaits, if it sleeps."""
    decide: Callable[[Any, float], tuple[Any, Ringing | None] | None] | None
    """Called with this object and the time when the timer rings.

    It returns the result of the sleep, and the object to ring next at its ``at_us``; or ``None``, and the task sleeps
    on.
    """


class LoopTimers:
    """The timers of one event loop over one timerfd. Only the loop holds them, so the file is closed with the loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._set = _setter(fd)
        self._set_us = inf
        self._pending: list[tuple[float, int, Ringing]] = []
        self._numbers = count(1)
        self._cancelled = 0
        self._early_us = 0.0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)

    def __len__(self) -> int:
        return len(self._pending)

    def set(self, ringing: Ringing, at_us: float) -> None:
        """Let ``ringing`` ring at a time of ``elapsed_us``, in microseconds, or slightly before."""
        at_us -= self._early_us
        number = ringing.timer = next(self._numbers)
        heappush(self._pending, (at_us, number, ringing))
        if at_us < self._set_us:
            self._set_us = at_us
            self._set(at_us)

    def cancel(self, ringing: Ringing) -> None:
        """Keep ``ringing`` from ringing; its place is freed at its time, or now, if there are many."""
        if ringing.timer:
            ringing.timer = 0
            self._cancelled += 1
            if self._cancelled > FEW and self._cancelled > len(self._pending) // 2:
                self._pending[:] = [each for each in self._pending if each[2].timer == each[1]]
                heapify(self._pending)
                self._cancelled = 0

    def ring(self) -> None:
        """Ring all timers whose time has come, and set the file to the next time; called when the file is readable.

        A timer that rings may run a task, which sets its own timer, or that of the next one.
        """
        now_us, newest, pending = elapsed_ns() / 1000, next(self._numbers), self._pending
        self._set_us = inf
        try:
            while pending and pending[0][1] < newest:
                at_us, number, ringing = pending[0]
                if ringing.timer == number and at_us > now_us:
                    break
                heappop(pending)
                if ringing.timer != number:
                    self._cancelled -= 1
                    continue
                ringing.timer = 0
                if now_us < ringing.at_us:
                    self._early_us = max(self._early_us - LATER_US, 0.0)
                elif self._early_us < EARLY_US:
                    self._early_us += SOONER_US
                if (sleeping := ringing.sleeping) is None or sleeping.done():
                    continue
                result = following = None
                if ringing.decide is not None:
                    decided = ringing.decide(ringing, now_us)
                    if decided is None:
                        continue
                    result, following = decided
                if following is not None:  # as ``set``, but the file is set once, when the task has run
                    number = following.timer = next(self._numbers)
                    heappush(pending, (following.at_us - self._early_us, number, following))
                ringing.sleeping = None
                sleeping.resume(result)
        finally:
            if not pending:
                self._drain()
            elif pending[0][0] < self._set_us:
                self._set_us = pending[0][0]
                self._set(self._set_us)

    def _drain(self) -> None:
        """Read the file, which would otherwise stay readable, unless it has been set since."""
        if self._set_us == inf:
            with suppress(BlockingIOError):
                os.read(self._fd, 8)


TimersOfLoop: TypeAlias = Callable[[], "LoopTimers | None"]
"""Refers to the timers of an event loop; returns ``None`` if there are none, or once the loop is gone."""

_by_loop: dict[int, tuple[ReferenceType[asyncio.AbstractEventLoop], TimersOfLoop]] = {}
"""Each event loop by its ``id``, and its timers."""


def timers_of(loop: asyncio.AbstractEventLoop) -> TimersOfLoop:
    """The exact timers of the running event loop."""
    entry = _by_loop.get(id(loop))
    if entry is not None and entry[0]() is loop:
        return entry[1]
    timers = _add_timers(loop)
    reference: TimersOfLoop = no_timers if timers is None else ref(timers)
    _by_loop[id(loop)] = ref(loop, partial(_forget, id(loop))), reference
    return reference


def no_timers() -> None:
    """The timers of a system or loop that has none."""


def _forget(number: int, loop: ReferenceType[asyncio.AbstractEventLoop]) -> None:
    if number in _by_loop and _by_loop[number][0] is loop:
        del _by_loop[number]


def _add_timers(loop: asyncio.AbstractEventLoop) -> LoopTimers | None:
    try:
        fd = _create()
    except OSError:
        return None
    timers = LoopTimers(fd)
    try:
        Context().run(loop.add_reader, fd, timers.ring)  # otherwise, the loop would keep the context of this caller
    except NotImplementedError:
        return None
    return timers


def _create() -> int:
    """A new timerfd on the clock of ``elapsed_us``. Raises ``OSError`` if the system has none."""
    if sys.platform != "linux":
        raise OSError(f"timerfd is of Linux, and this is {sys.platform}")
    if sys.version_info >= (3, 13):
        return os.timerfd_create(time.CLOCK_BOOTTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    fd: int = _c_library().timerfd_create(time.CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError("the system has no timerfd")
    return fd


def _setter(fd: int) -> Callable[[float], None]:
    """A function that sets a timerfd to a time in microseconds, or with 0 to never, so that it is not readable."""
    if sys.version_info >= (3, 13):
        return lambda at_us: _set_by_python(fd, at_us)
    call, times = _c_library().timerfd_settime, Struct("4l").pack  # of the interval, and of the time

    def set_by_c_library(at_us: float) -> None:
        seconds = at_us // 1e6
        call(fd, ABSOLUTE, times(0, 0, int(seconds), int((at_us - seconds * 1e6) * 1000.0)), None)

    return set_by_c_library


def _set_by_python(fd: int, at_us: float) -> None:
    if sys.version_info >= (3, 13):
        os.timerfd_settime_ns(fd, flags=ABSOLUTE, initial=min(round(at_us * 1000.0), LATEST_NS))


@cache
def _c_library() -> Any:
    """The C library, for Python before 3.13; the interpreter lock is kept, because the calls are short."""
    import ctypes

    try:
        library = ctypes.PyDLL(None)
        library.timerfd_settime  # noqa: B018  # without it, the C library is another one
    except AttributeError as error:
        raise OSError("the C library has no timerfd") from error
    return library
