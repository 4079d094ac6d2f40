"""Awaits what asynchronous hooks return: in the background, in order, and bounded in number."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, QueueFull, _get_running_loop
from collections import deque
from collections.abc import Awaitable
from concurrent.futures import Future, wait
from contextvars import Context
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any, TypeAlias

from ..logs import FailureLog
from ..waiting import background_loop
from ..waiting.background_loop import reset_in_child

MAX_CALLS = 1000
"""The most calls that wait, for each list of hooks and event loop. Further calls are dropped."""

CLOSE_WITHIN = 5.0
"""The most seconds for which a program that ends waits for calls that are still pending."""

_Calls: TypeAlias = "deque[tuple[object, Awaitable[object]]]"


@dataclass(frozen=True, slots=True)
class _Queue:
    """The calls that wait on one event loop, and the task that awaits them."""

    calls: _Calls
    task: asyncio.Task[None]


class BackgroundCalls:
    """The calls of asynchronous hooks, awaited one after another on the event loop that they come from.

    Calls from code without an event loop are awaited on the background event loop. Dropped calls are counted, and
    logged at most once a minute. So are failures.
    """

    def __init__(self, log: FailureLog) -> None:
        self._log = log
        self._queues: dict[AbstractEventLoop, _Queue] = {}
        self._background: AbstractEventLoop | None = None
        self.dropped = 0
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all calls: in a forked child, they belong to its parent."""
        for queue in self._queues.values():
            for _, call in queue.calls:
                _close(call)
        self._queues, self._background = {}, None

    def add(self, hook: object, call: Awaitable[object]) -> None:
        """Schedule what a hook has returned to be awaited soon."""
        loop = _get_running_loop()
        if loop is not None:
            self._add(loop, hook, call)
        else:
            self._background = loop = background_loop.loop()
            loop.call_soon_threadsafe(self._add, loop, hook, call)

    async def aclose(self) -> None:
        """Return when all waiting calls are made, or after ``CLOSE_WITHIN`` seconds; the remaining ones are dropped."""
        here = _get_running_loop()
        if here is None:  # trio
            self.close()
            return
        await self._end(here)
        elsewhere = [asyncio.wrap_future(each) for each in self._end_elsewhere()]
        if elsewhere:
            await asyncio.wait(elsewhere, timeout=2 * CLOSE_WITHIN)

    def close(self) -> None:
        """``aclose``, blocking this thread; it does not wait for calls on the event loop of this thread."""
        wait(self._end_elsewhere(), timeout=2 * CLOSE_WITHIN)

    def _end_elsewhere(self) -> list[Future[None]]:
        """``_end`` on each other event loop; one that ends meanwhile cancels it, or never completes it."""
        here = _get_running_loop()
        return [asyncio.run_coroutine_threadsafe(self._end(loop), loop) for loop in self._loops() if loop is not here]

    def _loops(self) -> list[AbstractEventLoop]:
        """The event loops on which calls are awaited, or, for the background loop, may be about to be."""
        others = [] if self._background is None else [self._background]
        return [loop for loop in {*self._queues, *others} if loop.is_running()]

    async def _end(self, loop: AbstractEventLoop) -> None:
        """Return when the calls that wait on this event loop are made; it also runs this coroutine."""
        queue = self._queues.get(loop)
        if queue is not None:
            await asyncio.wait([queue.task], timeout=CLOSE_WITHIN)
            queue.task.cancel()
            await asyncio.wait([queue.task])

    def _add(self, loop: AbstractEventLoop, hook: object, call: Awaitable[object]) -> None:
        queue = self._queues.get(loop)
        if queue is None:
            calls: _Calls = deque([(hook, call)])
            self._queues[loop] = _Queue(calls, loop.create_task(self._await_all(loop, calls), context=Context()))
        elif len(queue.calls) < MAX_CALLS:
            queue.calls.append((hook, call))
        else:
            self._drop(hook, call)

    async def _await_all(self, loop: AbstractEventLoop, calls: _Calls) -> None:
        try:
            while calls:
                await self._await(*calls.popleft())
        finally:
            del self._queues[loop]
            for hook, call in calls:
                self._drop(hook, call)

    async def _await(self, hook: object, call: Awaitable[object]) -> None:
        try:
            await call
        except (Exception, asyncio.CancelledError) as error:  # the hook is the user's
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # it runs in a task
                raise
            self._log.report(f"the hook {hook!r} failed", error, id(hook))

    def _drop(self, hook: object, call: Awaitable[object]) -> None:
        self.dropped += 1
        _close(call)
        full = QueueFull(f"{MAX_CALLS} calls of hooks are waiting, or the program ends")
        self._log.report(f"a call of the hook {hook!r} was dropped", full, (id(hook), "dropped"))


def _close(call: Any) -> None:
    """Close a call that nobody will await."""
    if iscoroutine(call):
        call.close()
