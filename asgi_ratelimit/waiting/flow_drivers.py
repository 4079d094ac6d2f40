"""Code with and without ``async`` shares one generator, a flow: it yields steps, and one of two drivers runs them.

The result of a step is sent back into the flow, and an exception, cancellation included, is thrown into it. So a flow
cleans up in plain ``except`` and ``finally`` blocks, by further steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from ..clock import Clock, time_of
from ..errors import ConfigurationError, StoreError
from ..logs import see
from ..stores import Store
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


def no_event_loop() -> ConfigurationError:
    """The error for a caller with ``async`` without a running event loop of asyncio."""
    return ConfigurationError(
        "a call that waits for its slot with async needs asyncio, and no event loop of it is running; under trio, "
        "pace a function without async, and call it in a thread: await trio.to_thread.run_sync(call)"
    )


async def run_async(flow: Flow[T]) -> T:
    """Run a flow in a task, and return its result."""
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
    call: Coroutine[Any, Any, Any]

    async def in_task(self) -> Any:
        return await self.call

    def in_thread(self) -> Any:
        return background_loop.run_in_place(self.call) if self.store.in_process else background_loop.run(self.call)


@dataclass(slots=True)
class BookSlot(CallStore):
    """Book a slot in a store. If the caller is cancelled before the answer arrives, ``undo`` gives the slot back."""

    undo: Callable[[Any], Coroutine[Any, Any, None]]

    async def in_task(self) -> Any:
        if self.store.in_process:
            return await self.call
        booking = start(self.call)
        try:
            return await asyncio.shield(booking)
        except asyncio.CancelledError:
            start(self._undo_when_booked(booking))
            raise

    def in_thread(self) -> Any:
        return background_loop.run_in_place(self.call) if self.store.in_process else background_loop.run(self.in_task())

    async def _undo_when_booked(self, booking: asyncio.Task[Any]) -> None:
        with contextlib.suppress(StoreError):
            await self.undo(await booking)


@dataclass(slots=True)
class GiveBack(CallStore):
    """Give something back to a store, and finish that even if the caller is cancelled again.

    While the store is out, nothing can be given back: that makes later callers wait longer, but breaks no promise.
    """

    async def in_task(self) -> None:
        if self.store.in_process:
            await self.call
        else:
            await asyncio.shield(start(self._try()))

    def in_thread(self) -> None:
        CallStore(self.store, self._try()).in_thread()

    async def _try(self) -> None:
        with contextlib.suppress(StoreError):
            await self.call


_futures: set[asyncio.Future[Any]] = set()
"""An event loop holds only weak references to its tasks."""

F = TypeVar("F", bound="asyncio.Future[Any]")


def keep(future: F) -> F:
    """Keep a task or future until it is done; return it."""
    _futures.add(future)
    future.add_done_callback(_futures.discard)
    return future


def start(call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine on the running event loop, to its end."""
    return keep(asyncio.get_running_loop().create_task(call))


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
    with contextlib.suppress(RuntimeError):  # usually, no loop runs in this thread
        asyncio.get_running_loop()
        warn_of_blocked_loop()
    wake_up.block()


@cache
def warn_of_blocked_loop() -> None:
    """Log, once for each process, that a call without ``async`` blocks an event loop while it waits."""
    logger.warning(
        "a paced function without async blocks the event loop that it was called on while it waits for its slot: "
        "make it async, or call it with asyncio.to_thread %s",
        see("a-blocked-event-loop"),
    )


def sleep(clock: Clock | None, wait_us: float) -> Flow[None]:
    """Sleep for ``wait_us`` microseconds."""
    wake_up = yield NewWakeUp(clock)
    wake_up.set(time_of(clock)() + wait_us)
    yield Sleep(wake_up)
