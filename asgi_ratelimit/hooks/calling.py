"""Several hooks as one: how middlewares, limiters and transports call them."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isawaitable, isfunction, signature
from types import TracebackType
from typing import Any

from ..clock import SECOND_NS, monotonic_ns
from ..decision import Decision
from ..errors import ConfigurationError
from ..logs import FailureLog
from ..stores import Store
from ..waiting import PaceTimeout
from .background import BackgroundCalls
from .events import Event, Failure, FailureHook, Hook, ObservedRequest


class Hooks:
    """Several hooks as one. An exception of a hook is logged; the request and the other hooks go on.

    A hook may also have these methods, which are then called: ``failed(failure)``; ``queued(name, change)``, with 1
    when a caller begins to wait for its slot, and -1 when it goes; and ``store_called(call)``, after each call of a
    store. Raises ``ConfigurationError`` for anything but several hooks, and for a hook that is not callable.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        if not isinstance(hooks, Iterable):
            raise ConfigurationError(f"hooks must be a list of functions of an Event, not {hooks!r}: hooks=[print]")
        self._hooks = tuple(hooks)
        self._log = FailureLog()
        self._background = BackgroundCalls(self._log)
        for hook in self._hooks:
            _require_hook(hook)
        self._failure_hooks: list[FailureHook] = self._methods("failed")
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
        hooks: tuple[Any, ...] = self._hooks
        for hook in hooks:
            if callable(getattr(hook, "store_called", None)):
                store.observe(hook)

    def failed(self, failure: Failure) -> None:
        """Call all hooks for failures with this one."""
        self._call(self._failure_hooks, failure)

    def queued(self, name: str, change: int) -> None:
        """Call all hooks for queues: a caller begins to wait, or goes."""
        self._call(self._queue_hooks, name, change)

    async def aclose(self) -> None:
        """Complete the calls of asynchronous hooks that still wait."""
        await self._background.aclose()

    def close(self) -> None:
        """``aclose`` for code without ``async``."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end(self.decision)
        else:
            self.end(error.decision if isinstance(error, PaceTimeout) else None)


def _require_hook(hook: object) -> None:
    """Raise ``ConfigurationError`` for what cannot be called with an event."""
    if not callable(hook):
        raise ConfigurationError(f"a hook is a function of an Event, not {hook!r}: hooks=[print]")
    name = getattr(hook, "__name__", repr(hook))
    if _lacks_its_call(hook):
        raise ConfigurationError(f"the hook {name} lacks its call: hooks=[{name}()]")
    try:
        parameters = signature(hook, follow_wrapped=False)  # a wrapper may take more than what it wraps
    except (TypeError, ValueError):
        return  # some of Python's own have none
    try:
        parameters.bind(None)
    except TypeError:
        raise ConfigurationError(
            f"a hook is called with an Event, which {name}{parameters} does not take: hooks=[print]"
        ) from None


def _lacks_its_call(hook: object) -> bool:
    """Whether ``hook`` makes a hook instead of being one: a class of hooks, or a function of this package."""
    if isinstance(hook, type):
        return any("__call__" in vars(each) for each in hook.__mro__)
    is_own = isfunction(hook) and hook.__module__.partition(".")[0] == __name__.partition(".")[0]
    return is_own and "<locals>" not in hook.__qualname__  # type: ignore[attr-defined]  # it is a function
