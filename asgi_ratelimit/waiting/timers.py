"""Exact timers of event loops. The loops' own ones are rounded up to whole milliseconds, which costs calls their rate.

On Linux, each event loop gets one timer of the system that is a file (a timerfd), set to the earliest time that any
waiter of the loop sleeps until: when it becomes readable, the loop wakes. Elsewhere, the loop's own timers have to do.

(Two alternatives are worse. To wake early, and sleep the rest of the millisecond, blocks the loop. A thread that
sleeps and calls the loop costs more, and is no more exact while the loop is busy.)
"""

from __future__ import annotations

import os
import sys
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextvars import Context
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from ..clock import elapsed_us

ABSOLUTE = 1
"""``TFD_TIMER_ABSTIME``: the time that is set is one of the clock, and not one from now."""

FEW = 64
"""So many cancelled timers are kept until their time; when there are more than those that are left, all are dropped."""


EARLY_US, SOONER_US, LATER_US = 250.0, 2.0, 20.0
"""A timer rings so much before its time as the task needs to run: 250 microseconds at most. That is found out by two
microseconds more for each task that was not early, and twenty less for each that was: so one of eleven is."""


class Timer:
    """Calls ``callback`` at a time, on the event loop."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: LoopTimers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call it."""
        if self.callback is not None:
            self.callback = None
            self._timers.drop_cancelled()


class LoopTimers:
    """The timers of one event loop over one timerfd. Only the loop holds it: the file is closed with the loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._set = _setter(fd)
        self._set_us = inf
        self._pending: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._cancelled = 0
        self._early_us = 0.0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)

    def __len__(self) -> int:
        return len(self._pending)

    def call_at(self, at_us: float, callback: Callable[[], None]) -> Timer:
        """Call this at a time of ``elapsed_us``, in microseconds, or slightly before."""
        timer = Timer(self, callback)
        at_us -= self._early_us
        heappush(self._pending, (at_us, next(self._numbers), timer))
        if at_us < self._set_us:
            self._set_us = at_us
            self._set(at_us)
        return timer

    def was_late(self, late_us: float) -> None:
        """A task runs so many microseconds after the time of its timer, or before it, if the number is negative."""
        if late_us < 0.0:
            self._early_us = max(self._early_us - LATER_US, 0.0)
        elif self._early_us < EARLY_US:
            self._early_us += SOONER_US

    def drop_cancelled(self) -> None:
        """A timer was cancelled: its place is freed at its time, or now, if there are many."""
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled > len(self._pending) // 2:
            self._pending = [each for each in self._pending if each[2].callback is not None]
            heapify(self._pending)
            self._cancelled = 0

    def ring(self) -> None:
        """Call what is due, and set the file to the next time; called by the loop when the file is readable."""
        self._set_us = inf
        now_us = elapsed_us()
        while self._pending and (self._pending[0][0] <= now_us or self._pending[0][2].callback is None):
            timer = heappop(self._pending)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                callback()
        if self._pending and self._pending[0][0] < self._set_us:
            self._set_us = self._pending[0][0]
            self._set(self._set_us)
        elif self._set_us == inf:
            self._set(0.0)  # otherwise it would stay readable


_by_loop: WeakKeyDictionary[AbstractEventLoop, ReferenceType[LoopTimers] | None] = WeakKeyDictionary()
"""The timers of each event loop; ``None`` where there can be none."""


def timers_of(loop: AbstractEventLoop) -> LoopTimers | None:
    """The exact timers of the running event loop; ``None`` where the system, or the loop, has none."""
    try:
        reference = _by_loop[loop]
    except KeyError:
        timers = _add_timers(loop)
        _by_loop[loop] = None if timers is None else ref(timers)
        return timers
    return None if reference is None else reference()


def _add_timers(loop: AbstractEventLoop) -> LoopTimers | None:
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
    """A new timerfd on the clock of ``elapsed_us``; raises ``OSError`` where there are none."""
    if sys.platform != "linux":
        raise OSError(f"timerfd is of Linux, and this is {sys.platform}")
    if sys.version_info >= (3, 13):
        return os.timerfd_create(time.CLOCK_BOOTTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    fd: int = _c_library().timerfd_create(time.CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError("the system has no timerfd")
    return fd


def _setter(fd: int) -> Callable[[float], None]:
    """What sets a timerfd to a time in microseconds, or with 0 to never, so that it is not readable any more."""
    if sys.version_info >= (3, 13):
        return lambda at_us: _set_by_python(fd, at_us)
    import ctypes  # where no call waits, it is not needed

    call = _c_library().timerfd_settime
    times = (ctypes.c_long * 4)()  # seconds and nanoseconds: of the interval, and of the time

    def set_by_c_library(at_us: float) -> None:
        times[2], times[3] = divmod(round(at_us * 1000.0), 1_000_000_000)
        call(fd, ABSOLUTE, times, None)

    return set_by_c_library


def _set_by_python(fd: int, at_us: float) -> None:
    if sys.version_info >= (3, 13):
        os.timerfd_settime_ns(fd, flags=ABSOLUTE, initial=round(at_us * 1000.0))


@cache
def _c_library() -> Any:
    """The C library, for Python before 3.13; the interpreter lock is kept, because the calls are short."""
    import ctypes

    try:
        library = ctypes.PyDLL(None)
        library.timerfd_settime.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
    except AttributeError as error:
        raise OSError("the C library has no timerfd") from error
    return library
