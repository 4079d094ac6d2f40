"""Code with and without ``async`` shares one generator, a flow: it yields steps, and one of two drivers runs them.

The result of a step is sent back into the flow, and an exception, cancellation included, is thrown into it. So a flow
cleans up in plain ``except`` and ``finally`` blocks, by further steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from ..clock import Clock, time_of
from ..decision import Decision, Take
from ..errors import StoreError
from ..logs import see
from ..stores import Store
from ..stores.event_loops import LONGEST, keep, running_loop, until_done_in_any_case
from . import background_loop
from .wakeups import LoopWakeUp, ThreadWakeUp

T = TypeVar("T")

logger = logging.getLogger("asgi_ratelimit")


class Step(Protocol):
    """One action of a flow, which can be run in a task or in a thread."""

    async def in_task(self) -> Any:
        """Run it without blocking the event loop."""
        ...

    def in_thread(self) -> Any:
        """Run it in this thread, without an event loop."""
        ...


Flow: TypeAlias = Generator[Step, Any, T]


async def run_async(flow: Flow[T]) -> T:
    """Run a flow in a task, and return its result. Raises ``ConfigurationError`` without asyncio."""
    running_loop(
        "a call that waits for its slot with async",
        "pace a function without async, and call it in a thread: await trio.to_thread.run_sync(call)",
    )
    resume: Callable[[Any], Step] = flow.send
    result: Any = None
    while True:
        try:
            step = resume(result)
        except StopIteration as done:
            return cast("T", done.value)
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
            return cast("T", done.value)
        try:
            resume, result = flow.send, step.in_thread()
        except BaseException as error:  # noqa: BLE001  # the flow handles it
            resume, result = flow.throw, error


@dataclass(slots=True)
class TaskOrThread:
    """Call one function in a task, or another in a thread."""

    of_task: Callable[[], Coroutine[Any, Any, Any]]
    of_thread: Callable[[], Any]

    async def in_task(self) -> Any:
        return await self.of_task()

    def in_thread(self) -> Any:
        return self.of_thread()


@dataclass(slots=True)
class CallStore:
    """Call a method of a store; the result is what the method returns."""

    store: Store
    call: Awaitable[Any]

    async def in_task(self) -> Any:
        return await self.call

    def in_thread(self) -> Any:
        call = self.in_task()
        return background_loop.run_in_place(call) if self.store.in_process else background_loop.run(call)


async def take_all(store: Store, *takes: Take) -> list[Decision]:
    """The decisions of a store on these takes, which it gets only when this runs, on an event loop."""
    return await store.take(takes)


@dataclass(slots=True)
class BookSlot:
    """Book a slot in a store. If the caller is cancelled before the answer arrives, ``undo`` gives the slot back.

    The caller sees that through, unless it is cancelled again.
    """

    store: Store
    book: Callable[[], Decision | Awaitable[Decision]]
    undo: Callable[[Decision], Coroutine[Any, Any, None]]

    async def in_task(self) -> Decision:
        answer = self.book()
        if isinstance(answer, Decision):
            return answer
        if self.store.in_process:
            return await answer
        booking = keep(self.store, asyncio.ensure_future(answer))
        try:
            return await asyncio.shield(booking)
        except asyncio.CancelledError:
            await see_through(self.store, partial(self._undo_when_booked, booking), LONGEST)
            raise

    def in_thread(self) -> Decision:
        call = self.in_task()
        return background_loop.run_in_place(call) if self.store.in_process else background_loop.run(call)

    async def _undo_when_booked(self, booking: asyncio.Future[Decision]) -> None:
        await until_done_in_any_case(lambda: [booking])
        if booking.done() and not booking.cancelled() and booking.exception() is None:
            with contextlib.suppress(StoreError):
                await self.undo(booking.result())


@dataclass(slots=True)
class GiveBack:
    """Give something back to a store, and finish that even if the caller is cancelled again.

    ``call`` may be called a second time, if the event loop ends meanwhile. While the store is out, nothing can be given
    back: that makes later callers wait longer, but breaks no promise.
    """

    store: Store
    call: Callable[[], Coroutine[Any, Any, Any]]

    async def in_task(self) -> None:
        if self.store.in_process:
            await self.call()
        else:
            await see_through(self.store, self.surely)

    def in_thread(self) -> None:
        CallStore(self.store, self.surely()).in_thread()

    async def surely(self) -> None:
        """Run it in a task of its own: once more, if that is cancelled at the end of the event loop."""
        with contextlib.suppress(StoreError):
            try:
                await self.call()
            except asyncio.CancelledError:
                await not_for_long(self.call())


async def see_through(
    store: Store, call: Callable[[], Coroutine[Any, Any, None]], longest: float | None = None
) -> None:
    """Run a coroutine in a task of its own, and wait for it; if this caller is cancelled again, the task goes on.

    ``asyncio.run`` cancels all tasks at its end, this one as well, and waits for those that there are: so the caller
    waits on then, and runs the coroutine itself if its task had not begun.
    """
    task = start(store, call())
    try:
        await asyncio.wait([task], timeout=longest)
    except asyncio.CancelledError:
        if task.cancelling():
            await asyncio.wait([task], timeout=LONGEST)
        if task.cancelled():
            await not_for_long(call())
        raise
    if task.done():
        task.result()


async def not_for_long(call: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine where the event loop waits for it at its end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST):
            await call


def start(store: Store, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine for a store on the running event loop, to its end."""
    return keep(store, asyncio.get_running_loop().create_task(call))


@dataclass(slots=True)
class NewWakeUp:
    """Make a wake-up of the kind that this driver can sleep on."""

    clock: Clock | None

    async def in_task(self) -> LoopWakeUp:
        return LoopWakeUp(self.clock)

    def in_thread(self) -> ThreadWakeUp:
        return ThreadWakeUp(self.clock)


@dataclass(slots=True)
class Sleep:
    """Sleep until the time of a wake-up."""

    wake_up: Any

    async def in_task(self) -> None:
        await self.wake_up.sleep()

    def in_thread(self) -> None:
        block(self.wake_up)


def block(wake_up: ThreadWakeUp) -> None:
    """Block this thread until the time of a wake-up."""
    if asyncio._get_running_loop() is not None:
        warn_of_blocked_loop()
    wake_up.block()


@cache
def warn_of_blocked_loop() -> None:
    """Log, once for each process, that a call without ``async`` blocks an event loop while it waits."""
    logger.warning(
        "a call waits for its slot without async, and blocks the event loop that it was called on: wait "
        "with async, as Limiter.acquire and an async def under @pace do, or call it with asyncio.to_thread %s",
        see("a-blocked-event-loop"),
    )


def sleep(clock: Clock | None, wait_us: float) -> Flow[None]:
    """Sleep for ``wait_us`` microseconds."""
    wake_up = yield NewWakeUp(clock)
    wake_up.set(time_of(clock)() + wait_us)
    yield Sleep(wake_up)
