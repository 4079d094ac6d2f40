"""One flow for code with and without ``async``: a generator says what to do, and one of two drivers does it.

A flow yields steps. What a step comes to is sent back to it, what it raises is thrown into it, cancellation too; so a
flow cleans up in plain ``except`` and ``finally``, by further steps.
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
from ..errors import StoreError
from ..stores import Store
from . import background_loop
from .wakeups import LoopAlarm, ThreadAlarm

T = TypeVar("T")

logger = logging.getLogger("asgi_ratelimit")


class Step(Protocol):
    """Something to be done, in either of two ways."""

    async def in_task(self) -> Any:
        """Do it without blocking the event loop."""
        ...

    def in_thread(self) -> Any:
        """Do it in this thread, with no event loop."""
        ...


Flow: TypeAlias = Generator[Step, Any, T]


async def run_async(flow: Flow[T]) -> T:
    """Carry out a flow in a task, and return what it returns."""
    resume: Callable[[Any], Step] = flow.send
    result: Any = None
    while True:
        try:
            step = resume(result)
        except StopIteration as done:
            return cast("T", done.value)
        try:
            resume, result = flow.send, await step.in_task()
        except BaseException as error:  # noqa: BLE001  # the flow decides what becomes of it
            resume, result = flow.throw, error


def run_sync(flow: Flow[T]) -> T:
    """Carry out a flow in this thread, and return what it returns."""
    resume: Callable[[Any], Step] = flow.send
    result: Any = None
    while True:
        try:
            step = resume(result)
        except StopIteration as done:
            return cast("T", done.value)
        try:
            resume, result = flow.send, step.in_thread()
        except BaseException as error:  # noqa: BLE001  # the flow decides what becomes of it
            resume, result = flow.throw, error


@dataclass(slots=True)
class Ask:
    """Ask a store something; comes to its answer."""

    store: Store
    verb: Coroutine[Any, Any, Any]

    async def in_task(self) -> Any:
        return await self.verb

    def in_thread(self) -> Any:
        return background_loop.run_in_place(self.verb) if self.store.in_process else background_loop.run(self.verb)


@dataclass(slots=True)
class Book(Ask):
    """Ask a store for slots; a caller that is cancelled before the answer is there has them given back by ``undo``."""

    undo: Callable[[Any], Coroutine[Any, Any, None]]

    async def in_task(self) -> Any:
        if self.store.in_process:
            return await self.verb
        booking = _kept(self.verb)
        try:
            return await asyncio.shield(booking)
        except asyncio.CancelledError:
            _kept(self._undone(booking))
            raise

    def in_thread(self) -> Any:
        return background_loop.run_in_place(self.verb) if self.store.in_process else background_loop.run(self.in_task())

    async def _undone(self, booking: asyncio.Task[Any]) -> None:
        with contextlib.suppress(StoreError):
            await self.undo(await booking)


@dataclass(slots=True)
class GiveBack(Ask):
    """Tell a store to take something back, and see that through, even if the caller is cancelled once more.

    What cannot be given back because the store is out is lost, which costs time, but breaks no promise.
    """

    async def in_task(self) -> None:
        if self.store.in_process:
            await self.verb
        else:
            await asyncio.shield(_kept(self._tried()))

    def in_thread(self) -> None:
        Ask(self.store, self._tried()).in_thread()

    async def _tried(self) -> None:
        with contextlib.suppress(StoreError):
            await self.verb


_under_way: set[asyncio.Task[Any]] = set()
"""An event loop keeps no hold of its tasks."""


def _kept(verb: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(verb)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


@dataclass(slots=True)
class NewAlarm:
    """Comes to an alarm of the kind that this driver can sleep on."""

    clock: Clock | None

    async def in_task(self) -> LoopAlarm:
        return LoopAlarm(self.clock)

    def in_thread(self) -> ThreadAlarm:
        return ThreadAlarm(self.clock)


@dataclass(slots=True)
class Sleep:
    """Sleep until an alarm goes off."""

    alarm: Any

    async def in_task(self) -> None:
        await self.alarm.sleep()

    def in_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # as a rule there is none
            asyncio.get_running_loop()
            _warn_of_the_loop()
        self.alarm.block()


@cache
def _warn_of_the_loop() -> None:
    """Say once that an event loop stands still, because code without ``async`` waits on its thread."""
    logger.warning(
        "code without async waits for its turn on the thread of an event loop, which stands still meanwhile: "
        "make it async, or call it by asyncio.to_thread (docs/warnings.md#an-event-loop-that-stands-still)"
    )


def sleep(clock: Clock | None, wait_us: float) -> Flow[None]:
    """Sleep for some microseconds."""
    alarm = yield NewAlarm(clock)
    alarm.set(time_of(clock)() + wait_us)
    yield Sleep(alarm)
