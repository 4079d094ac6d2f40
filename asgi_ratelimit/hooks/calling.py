"""Several hooks as one: how middlewares, limiters and transports call them, and await what asynchronous ones return."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, QueueFull, _get_running_loop
from collections import deque
from collections.abc import Awaitable, Iterable
from contextvars import Context
from inspect import isawaitable, iscoroutine, signature
from typing import Any, TypeAlias

from ..clock import SECOND_NS, monotonic_ns
from ..decision import Decision
from ..errors import ConfigurationError
from ..logs import FailureLog
from ..stores import Store
from ..waiting import PaceTimeout, background_loop
from .events import Event, Failure, Hook, ObservedRequest

MAX_CALLS = 1000
"""The most calls that wait, for each list of hooks and event loop. Further calls are dropped."""

CLOSE_WITHIN = 5.0
"""The most seconds for which a program that ends waits for calls that are still pending."""


_MAKERS = ("asgi_ratelimit.metrics.opentelemetry_backend", "asgi_ratelimit.metrics.prometheus_backend")
"""The modules of functions that make a hook instead of being one."""


class Hooks:
    """Several hooks as one. An exception of a hook is logged; the request and the other hooks go on.

    A hook may also have these methods, which are then called: ``failed(failure)``; ``queued(name, change)``, with 1
    when a caller begins to wait for its slot, and -1 when it goes; and ``store_called(call)``, after each call of a
    store. Raises ``ConfigurationError`` for anything but several hooks, and for a hook that is not callable.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        if not isinstance(hooks, Iterable):
            raise ConfigurationError(f"hooks must be a list of functions of an Event, not {hooks!r}: hooks=[print]")
        self._hooks: tuple[Any, ...] = tuple(hooks)
        self._log = FailureLog()
        self._background = _BackgroundCalls(self._log)
        for hook in self._hooks:
            _require_hook(hook)
        self._failure_hooks = self._methods("failed")
        self._queue_hooks = self._methods("queued")

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def __call__(
        self,
        name: str,
        decision: Decision,
        latency: float | None = None,
        waited: float | None = None,
        request: ObservedRequest | None = None,
    ) -> None:
        """Call all hooks with a decision."""
        self._call(self._hooks, Event(name, decision, latency, waited, request))

    def waiting(self, name: str) -> ObservedWait:
        """The wait of a caller that begins to wait for its slot: use it as a block, or call its ``end``."""
        return ObservedWait(self, name)

    def watch(self, store: Store) -> None:
        """Call the hooks that have ``store_called`` with the calls of this store."""
        for hook in self._hooks:
            if callable(getattr(hook, "store_called", None)):
                store.observe(hook)

    def failed(self, failure: Failure) -> None:
        """Call all hooks for failures with this one."""
        self._call(self._failure_hooks, failure)

    def queued(self, name: str, change: int) -> None:
        """Call all hooks for queues: a caller begins to wait, or goes."""
        self._call(self._queue_hooks, name, change)

    async def aclose(self) -> None:
        """Complete the calls of asynchronous hooks that wait on this event loop, and those of code without one."""
        await self._background.aclose()

    def close(self) -> None:
        """Complete the calls of code without an event loop, blocking this thread."""
        self._background.close()

    def _methods(self, name: str) -> list[Any]:
        methods = [getattr(hook, name, None) for hook in self._hooks]
        return [method for method in methods if callable(method)]

    def _call(self, hooks: Iterable[Any], *arguments: object) -> None:
        for hook in hooks:
            try:
                returned = hook(*arguments)
                if returned is not None and isawaitable(returned):
                    self._background.add(hook, returned)
            except Exception as error:  # noqa: BLE001  # the hook is the user's, and may raise anything
                self._log.report(f"the hook {hook!r} failed", error, id(hook))


class ObservedWait:
    """A caller that waits for its slot. Used as a block, the block sets its ``decision``, or raises a timeout."""

    __slots__ = ("_hooks", "_name", "_since_ns", "decision")

    decision: Decision

    def __init__(self, hooks: Hooks, name: str) -> None:
        self._hooks = hooks
        self._name = name
        self._since_ns = monotonic_ns()
        hooks.queued(name, 1)

    def end(self, decision: Decision | None) -> None:
        """End the wait, and call the hooks with its decision, if there is one."""
        self._hooks.queued(self._name, -1)
        if decision is not None and self._hooks:
            self._hooks(self._name, decision, waited=(monotonic_ns() - self._since_ns) / SECOND_NS)

    def __enter__(self) -> ObservedWait:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.end(self.decision)
        else:
            self.end(error.decision if isinstance(error, PaceTimeout) else None)


_Calls: TypeAlias = "deque[tuple[object, Awaitable[object]]]"
"""The hooks and what they have returned, which is still to be awaited."""


class _BackgroundCalls:
    """The calls of asynchronous hooks, awaited one after another on the event loop that they come from.

    Calls from code without an event loop are awaited on the background event loop. Dropped calls are logged at most
    once a minute. So are failures.
    """

    def __init__(self, log: FailureLog) -> None:
        self._log = log
        self._queues: dict[AbstractEventLoop, tuple[_Calls, asyncio.Task[None]]] = {}
        self._background: AbstractEventLoop | None = None

    def add(self, hook: object, call: Awaitable[object]) -> None:
        """Schedule what a hook has returned to be awaited soon."""
        loop = _get_running_loop()
        if loop is not None:
            self._add(loop, hook, call)
        else:
            self._background = loop = background_loop.loop()
            loop.call_soon_threadsafe(self._add, loop, hook, call)

    async def aclose(self) -> None:
        """Return when the calls that wait here or in the background are made, or after ``CLOSE_WITHIN`` seconds each.

        The remaining ones are dropped. Calls on other event loops, which may have ended, go on by themselves.
        """
        here = _get_running_loop()
        if here is None:  # trio
            self.close()
            return
        await self._end(here)
        if self._background not in (None, here):
            await asyncio.wrap_future(background_loop.start(self._end(background_loop.loop())))

    def close(self) -> None:
        """``aclose`` of the calls in the background, blocking this thread."""
        if self._background not in (None, _get_running_loop()):
            background_loop.run(self._end(background_loop.loop()))

    async def _end(self, loop: AbstractEventLoop) -> None:
        """Return when the calls that wait on this event loop are made; it also runs this coroutine."""
        if loop in self._queues:
            _, task = self._queues[loop]
            await asyncio.wait([task], timeout=CLOSE_WITHIN)
            task.cancel()
            await asyncio.wait([task])

    def _add(self, loop: AbstractEventLoop, hook: object, call: Awaitable[object]) -> None:
        if loop not in self._queues:
            calls: _Calls = deque([(hook, call)])
            self._queues[loop] = calls, loop.create_task(self._await_all(loop, calls), context=Context())
        elif len(self._queues[loop][0]) < MAX_CALLS:
            self._queues[loop][0].append((hook, call))
        else:
            self._drop(hook, call)

    async def _await_all(self, loop: AbstractEventLoop, calls: _Calls) -> None:
        try:
            while calls:
                hook, call = calls.popleft()
                try:
                    await call
                except (Exception, asyncio.CancelledError) as error:  # the hook is the user's
                    if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # it runs in a task
                        raise
                    self._log.report(f"the hook {hook!r} failed", error, id(hook))
        finally:
            del self._queues[loop]
            for hook, call in calls:
                self._drop(hook, call)

    def _drop(self, hook: object, call: Awaitable[object]) -> None:
        if iscoroutine(call):
            call.close()
        full = QueueFull(f"{MAX_CALLS} calls of hooks are waiting, or the program ends")
        self._log.report(f"a call of the hook {hook!r} was dropped", full, (id(hook), "dropped"))


def _require_hook(hook: object) -> None:
    """Raise ``ConfigurationError`` for what cannot be called with an event."""
    if not callable(hook):
        raise ConfigurationError(f"a hook is a function of an Event, not {hook!r}: hooks=[print]")
    name = getattr(hook, "__name__", repr(hook))
    if isinstance(hook, type) or getattr(hook, "__module__", None) in _MAKERS:
        raise ConfigurationError(f"the hook {name} lacks its call: hooks=[{name}()]")
    try:
        signature(hook, follow_wrapped=False).bind(None)  # a wrapper may take more than what it wraps
    except TypeError:
        raise ConfigurationError(f"a hook is called with an Event, which {name} does not take: hooks=[print]") from None
    except ValueError:
        """Some of Python's own have no signature."""
