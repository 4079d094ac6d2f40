"""Wake-ups, on which waiting callers sleep. Each is set to a time, and any thread may set it to another one.

A sleep is one wait of the event loop, or of the thread: nothing polls, and no lock is held during it.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Event, RLock, get_ident
from typing import Protocol

from ..clock import Clock, time_of, wait_for
from ..decision import Charge
from .background_loop import reset_in_child


class WakeUp(Protocol):
    """A time at which a caller wakes, in microseconds of the clock that the wake-up was made with; at first, never."""

    at_us: float

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the caller; ``None`` for a thread."""
        ...

    def set(self, at_us: float, now_us: float | None = None) -> None:
        """Wake the caller at ``at_us``, not at the time set before; ``now_us`` is the current time. Thread-safe."""
        ...


class LoopWakeUp:
    """The wake-up of a task in an event loop. It has a timer only while it sleeps until a time that is set."""

    __slots__ = ("_handle", "_now", "_sleeping", "_thread", "at_us", "loop")

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self.loop = asyncio.get_running_loop()
        self._now = time_of(clock)
        self._thread = get_ident()
        self._sleeping: asyncio.Future[None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_us: float, now_us: float | None = None) -> None:
        """Wake the task at ``at_us``."""
        self.at_us = at_us
        if self._sleeping is None:  # it checks the time before it sleeps
            return
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any longer
            if get_ident() != self._thread:
                self.loop.call_soon_threadsafe(self._set_timer)
            else:
                self._set_timer(now_us)

    async def sleep(self) -> float:
        """Sleep until the time that is set; return the current time."""
        try:
            while (now_us := self._now()) < self.at_us:
                self._sleeping = future = self.loop.create_future()
                self._set_timer(now_us)
                await future
            return now_us
        finally:
            self._sleeping = None
            self._cancel_timer()

    def _set_timer(self, now_us: float | None = None) -> None:
        self._cancel_timer()
        future = self._sleeping
        if future is None or future.done():
            return
        left_us = self.at_us - (self._now() if now_us is None else now_us)
        if left_us <= 0:
            future.set_result(None)
        elif left_us < math.inf:
            self._handle = self.loop.call_later(left_us / 1e6, _end_sleep, future)

    def _cancel_timer(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _end_sleep(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ThreadWakeUp:
    """The wake-up of a thread."""

    loop = None

    def __init__(self, clock: Clock | None) -> None:
        self.at_us = math.inf
        self._clock = clock
        self._now = time_of(clock)
        self._changed = Event()

    def set(self, at_us: float, now_us: float | None = None) -> None:  # noqa: ARG002  # for tasks
        """Wake the thread at ``at_us``."""
        self.at_us = at_us
        self._changed.set()

    def block(self) -> None:
        """Block this thread until the time that is set."""
        while (left_us := self.at_us - self._now()) > 0:
            wait_for(self._changed, left_us / 1e6, self._clock if left_us < math.inf else None)
            self._changed.clear()


class BucketWakeUps:
    """The wake-ups of callers that wait until units come back to a bucket. Thread-safe."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._lock = RLock()  # the garbage collector may call remove() in here, by closing a forgotten caller
        self._by_bucket: dict[str, OrderedDict[WakeUp, None]] = {}

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._by_bucket)

    def add(self, buckets: Iterable[str], wake_up: WakeUp) -> None:
        """Wake this caller whenever units come back to one of these buckets."""
        with self._lock:
            for bucket in buckets:
                wake_ups = self._by_bucket.setdefault(bucket, OrderedDict())
                wake_ups[wake_up] = None
                self._by_bucket[bucket] = wake_ups  # a caller that was dropped may have removed the empty one

    def remove(self, buckets: Iterable[str], wake_up: WakeUp) -> None:
        """No longer wake this caller."""
        with self._lock:
            for bucket in buckets:
                wake_ups = self._by_bucket.get(bucket, OrderedDict())
                wake_ups.pop(wake_up, None)
                if not wake_ups:
                    self._by_bucket.pop(bucket, None)

    def set(self, wake_up: WakeUp, at_us: float) -> None:
        """Wake this caller at ``at_us``, unless units have come back since its wake-up was set to never."""
        with self._lock:
            if wake_up.at_us == math.inf:
                wake_up.set(at_us)

    def wake(self, charges: Sequence[Charge]) -> None:
        """Wake the callers of the buckets of these charges, to which units have come back."""
        if not self._by_bucket:
            return
        with self._lock:
            for charge in charges:
                for wake_up in list(self._by_bucket.get(charge.bucket, ())):  # one on a closed loop may leave in here
                    wake_up.set(0.0)
