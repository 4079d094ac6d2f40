"""For tests in other projects: a clock that is moved by hand, and an event loop and a limiter that run on it."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

from .buckets import DEFAULT_NAME
from .errors import ConfigurationError, require_number
from .inbound.dependency import app_stores
from .limiter.limiter import Limiter
from .quota_text import QuotaLike
from .quotas import MAX_UNITS
from .stores import MemoryStore

T = TypeVar("T")


class SteppedClock:
    """A clock that stands still until it is moved, for any store: ``MemoryStore(clock=SteppedClock())``.

    It starts at ``now`` seconds since the epoch, and counts whole microseconds.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now_us = round(_seconds(now, "SteppedClock(1_800_000_000.0)") * 1e6)

    def __repr__(self) -> str:
        return f"SteppedClock({self.now})"

    @property
    def now(self) -> float:
        """The time in seconds since the epoch."""
        return self._now_us / 1e6

    def now_us(self) -> int:
        """The time in microseconds since the epoch."""
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``, rounded up to whole microseconds; a negative number sets it back."""
        step_us = math.ceil(round(_seconds(seconds, "clock.advance(1.5)") * 1e6, 1))
        self._now_us += step_us  # with no call in between, in which another thread might move it

    def move_to(self, now: float) -> None:
        """Set the time to ``now`` seconds since the epoch."""
        self._now_us = round(_seconds(now, "clock.move_to(1_800_000_000.0)") * 1e6)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in an event loop on this clock: its sleeps move the clock, and take no real time.

        Raises ``ConfigurationError`` within a loop that is running, such as that of a test with ``async``.
        """
        if asyncio._get_running_loop() is not None:
            main.close()
            problem = "clock.run starts an event loop of its own, and another is running"
            raise ConfigurationError(f"{problem}: write the test without async, def test_it(): clock.run(main())")
        with asyncio.Runner(loop_factory=self.event_loop) as runner:
            return runner.run(main)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop on this clock: when all its tasks wait, the clock moves to the next timer.

        It does not wait for anything outside it, such as threads and sockets.
        """
        return _SteppedLoop(self)

    def wait(self, event: Event, seconds: float) -> None:
        """Called by a thread that waits on this clock: moves the clock, unless ``event`` is set."""
        if not event.is_set():
            self.advance(seconds)


def _seconds(seconds: float, use: str) -> float:
    """``seconds``, if they are a finite number; ``ConfigurationError`` otherwise."""
    return float(require_number("the time of a SteppedClock is in seconds", seconds, -MAX_UNITS, MAX_UNITS, use))


class _SteppedLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self._started_us = clock.now_us()
        super().__init__(_SteppedSelector(clock))

    def time(self) -> float:
        now = (self._clock.now_us() - self._started_us) / 1e6
        self._clock_resolution = max(1e-9, math.ulp(now))  # beside months, less is lost, and no timer would be due
        return now

    async def shutdown_default_executor(self, *_: float | None) -> None:
        """Wait for the threads, without the timer that the runner sets: the clock would move to it."""
        await super().shutdown_default_executor()


class _SteppedSelector(selectors.DefaultSelector):
    """Moves the clock to the next timer when the loop would sleep until then."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if not (ready := super().select(0)):
            self._clock.advance(max(timeout, 1e-6))  # otherwise it would never reach the timer
        return ready


class SteppedLimiter(Limiter):
    """A ``Limiter`` for tests: it needs no server, and its time stands still until ``limiter.clock`` is moved."""

    def __init__(self, quota: QuotaLike, *, name: str = DEFAULT_NAME) -> None:
        self.clock = SteppedClock()
        super().__init__(quota, store=MemoryStore(clock=self.clock), name=name)


@contextmanager
def stepped_dependencies(clock: SteppedClock | None = None) -> Iterator[SteppedClock]:
    """Reset the limits of ``Depends(RateLimit(...))``, and stop their time: ``with stepped_dependencies() as clock:``.

    Within this block, limits without a ``RateLimitMiddleware`` around them are in a new memory store, even those with a
    store of their own, and time stands still until ``clock`` is moved. Afterwards, everything is as before.
    """
    clock = SteppedClock() if clock is None else clock
    with app_stores.replaced(MemoryStore(clock=clock)):
        yield clock
