"""Code with and without ``async`` shares one generator, a flow: it yields steps, and one of two drivers runs them.

The result of a step is sent back into the flow, and an exception, cancellation included, is thrown into it. So a flow
cleans up in plain ``except`` and ``finally`` blocks, by further steps: after any exception but ``GeneratorExit``, by
which a flow is dropped. A step that needs an event loop runs, in a thread, on the background loop of its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from threading import Event
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from ..background import LONGEST, background_loop, keep, run_in_place, running_loop, unharmed
from ..clock import Clock, monotonic_us, time_of, wait_for
from ..decision import Decision, Take
from ..errors import StoreError
from ..logs import warn_once
from ..stores import Decisions, Store, settle_all, undoing

T = TypeVar("T")


# The drivers


class Step(Protocol):
    """One action of a flow, which can be run in a task or in a thread."""

    async def in_task(self) -> Any:
        """Run it without blocking the event loop."""

    def in_thread(self) -> Any:
        """Run it in this thread, without an event loop."""


Flow: TypeAlias = Generator[Step, Any, T]


# What to do where asyncio does not run.
IN_A_THREAD = "pace a function without async, and call it in a thread: await trio.to_thread.run_sync(call)"


async def run_async(flow: Flow[T]) -> T:
    """Run a flow in a task, and return its result. Raises ``ConfigurationError`` without asyncio."""
    running_loop("a call that waits for its slot with async", IN_A_THREAD)
    resume: Callable[[Any], Step] = flow.send
    result: Any = None
    while True:
        try:
            step = resume(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration is not generic
        try:
            resume, result = flow.send, await step.in_task()
        except BaseException as error:  # noqa: BLE001  # the flow handles it
            resume, result = flow.throw, error


def run_sync(flow: Flow[T]) -> T:
    """Run a flow in this thread, and return its result."""
    resume: Callable[[Any], Step] = flow.send
    result: Any = None
    while True:
        try:
            step = resume(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration is not generic
        try:
            resume, result = flow.send, step.in_thread()
        except BaseException as error:  # noqa: BLE001  # the flow handles it
            resume, result = flow.throw, error


# Steps that call a store


class StoreStep(Step):
    """A step that is a coroutine: in a thread, a store in this process needs no event loop for it."""

    store: Store

    def in_thread(self) -> Any:
        """Call the store from this thread."""
        return run_in_place(self.in_task()) if self.store.in_process else background_loop.run(self.in_task())


@dataclass(slots=True)
class CallStore(StoreStep):
    """Call a method of a store; the result is what the method returns."""

    store: Store
    call: Awaitable[Any]

    async def in_task(self) -> Any:
        return await self.call


@dataclass
class SendTake(StoreStep):
    """Send a take to a store. A caller that is cancelled meanwhile should ``undo`` it."""

    store: Store
    take: Take
    # The decision, or what waits for it.
    _answer: Any = field(init=False, default=None)

    async def in_task(self) -> Decision:
        if not self.store.in_process:
            await asyncio.sleep(0)  # what was released just now goes first
        answer: Any = self.store.take((self.take,))
        if not self.store.in_process and type(answer) is not Decisions:
            self._answer = keep(self.store, asyncio.ensure_future(answer))
            answer = unharmed(self._answer)
        self._answer = await answer
        return self._answer[0]  # type: ignore[no-any-return]  # it is a decision

    async def undo(self) -> None:
        """Give back what was taken, once that is known; what belongs to an operation stays for its next caller."""
        waits = isinstance(self._answer, asyncio.Future)
        for decision in (await unharmed(self._answer) if waits else self._answer) or ():
            if decision.take.operation is None:
                await settle_all(self.store, undoing(decision), is_unused=True)


@dataclass
class Finish(StoreStep):
    """Call a store, and finish that even if the caller is cancelled, which then waits for it, but not for long.

    ``longest`` is the longest wait of one that is not cancelled, in seconds.
    """

    store: Store
    call: Callable[[], Coroutine[Any, Any, Any]]
    longest: ClassVar[float | None] = None

    async def in_task(self) -> Any:
        if self.store.in_process:
            return await self.call()
        task = keep(self.store, asyncio.ensure_future(self.call()))
        try:
            return await (unharmed(task) if self.longest is None else asyncio.wait([task], timeout=self.longest))
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=LONGEST)
            if task.cancelled() and self.longest is not None:
                # At its end, ``asyncio.run`` cancels all tasks, this one and that one, which then may never have begun.
                with contextlib.suppress(StoreError):
                    await self.call()
            raise


class GiveBack(Finish):
    """Give something back to a store, and finish that even if the caller is cancelled again.

    ``call`` may be called a second time, if the event loop ends meanwhile. While the store is out, nothing can be given
    back: that makes later callers wait longer, but breaks no promise.
    """

    longest = LONGEST


# Steps that sleep


class WakeUp:
    """A step that sleeps until ``at_us`` on its clock, which others may change meanwhile; at first, the deadline.

    A sleep is one wait of the event loop, or of the thread: nothing polls, and no lock is held during it.
    """

    # For a task that sleeps, what it awaits, and its timer, if it has one.
    _sleeping: asyncio.Future[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    # What wakes a thread that sleeps.
    _changed: Event | None = None

    def __init__(self, clock: Clock | None, deadline_us: float = math.inf) -> None:
        self.at_us = self.deadline_us = deadline_us
        self._clock = clock
        self.now = monotonic_us if clock is None else clock.now_us
        # The event loop of its task, if it has one.
        self.loop: Any = asyncio._get_running_loop()

    def set(self, at_us: float) -> None:
        """Wake the caller at ``at_us``, or at the deadline, not at the time set before. Thread-safe."""
        self.at_us = at_us if at_us < self.deadline_us else self.deadline_us
        if self._sleeping is not None:  # else it checks the time before it sleeps
            if asyncio._get_running_loop() is self.loop:
                self._look()
            else:
                with contextlib.suppress(RuntimeError):  # the loop was closed, so nobody waits any longer
                    self.loop.call_soon_threadsafe(self._look)
        elif self._changed is not None:
            self._changed.set()

    @property
    def is_dead(self) -> bool:
        """Whether its caller can never go on, because its event loop is closed."""
        return self.loop is not None and self.loop.is_closed()

    async def in_task(self) -> float:
        """Sleep, with a timer only if a time is set; return the time when it is over."""
        try:
            while (now_us := self.now()) < self.at_us:
                self._sleeping = self.loop.create_future()
                if self.at_us < math.inf:
                    self._look()
                await self._sleeping
            return now_us
        finally:
            self._sleeping = None
            if self._timer is not None:
                self._timer.cancel()

    def _look(self) -> None:
        """Set the timer of a sleeping task, which looks at the time itself when it rings."""
        if self._timer is not None:
            self._timer.cancel()
        left_us = self.at_us - self.now()
        if left_us <= 0.0:
            self._ring()
        elif self._sleeping is not None and left_us < math.inf:
            self._timer = self.loop.call_later(max(left_us, 1.0) / 1e6, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)

    def in_thread(self) -> float:
        """Block this thread; return the time when that is over."""
        running = asyncio._get_running_loop()
        if running is not None and running is not background_loop.loop():
            problem = "a call waits for its slot without async, and blocks the event loop that it was called on"
            right = "as Limiter.acquire and an async def under @pace do, or call it with asyncio.to_thread"
            warn_once("a-blocked-event-loop", f"{problem}: wait with async, {right}")
        self._changed = Event()
        while (left_us := self.at_us - (now_us := self.now())) > 0:
            wait_for(self._changed, left_us / 1e6, self._clock if left_us < math.inf else None)
            self._changed.clear()
        return now_us


def sleep(clock: Clock | None, wait_us: float) -> Flow[None]:
    """Sleep for ``wait_us`` microseconds."""
    yield WakeUp(clock, time_of(clock)() + wait_us)
