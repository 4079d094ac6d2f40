"""Hooks: functions of the program that are called with every decision. They see decisions and never change them.

No ``await``, no lock in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from .decision import Decision
from .errors import ConfigurationError
from .logs import FailureLog


@dataclass(frozen=True, slots=True)
class Event:
    """A ``decision`` of the limiter ``name``.

    With ``decision.shadow`` it was not enforced, and with ``decision.degraded`` it was made without the store.
    """

    name: str
    decision: Decision


Hook: TypeAlias = Callable[[Event], None]
"""A function that is called after each decision, in the event loop, so it must not block."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A function of the program that ``failed``, by raising or by what it returned.

    ``failed`` is the argument that it was given as: ``"key"``, ``"quota"``, ``"cost"``, ``"settle"``, ``"allow"``,
    ``"deny"`` or ``"on_limited"``. ``name`` is that of the rule or dependency, or else of the middleware.
    """

    name: str
    failed: str
    error: Exception


FailureHook: TypeAlias = Callable[[Failure], None]
"""A function that is called after each failure, in the event loop, so it must not block."""


class failures:  # noqa: N801  # a function to its users
    """A hook that is called with each ``Failure``, and with no decision: ``hooks=[failures(count)]``.

    Any other hook with a method ``failed`` gets failures as well, as the argument of that method.
    """

    def __init__(self, function: FailureHook) -> None:
        if not callable(function):
            raise ConfigurationError(f"a hook is a function of a Failure, not {function!r}: hooks=[failures(print)]")
        self.failed = function

    def __repr__(self) -> str:
        return f"failures({self.failed!r})"

    def __call__(self, event: Event) -> None:
        """Decisions are of no interest."""


class Hooks:
    """Several hooks as one. An exception of a hook is logged; the request and the other hooks go on.

    Raises ``ConfigurationError`` for anything but several hooks, and for a hook that is not callable.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        if not isinstance(hooks, Iterable):
            raise ConfigurationError(f"hooks must be a list of functions of an Event, not {hooks!r}: hooks=[print]")
        self._hooks = tuple(hooks)
        self._log = FailureLog()
        for hook in self._hooks:
            if not callable(hook):
                raise ConfigurationError(f"a hook is a function of an Event, not {hook!r}: hooks=[print]")
        methods = [getattr(hook, "failed", None) for hook in self._hooks]
        self._failure_hooks: list[FailureHook] = [method for method in methods if callable(method)]

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def __call__(self, name: str, decision: Decision) -> None:
        event = Event(name, decision)
        for hook in self._hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001  # the hook is the user's, and may raise anything
                self._report(hook, error)

    def failed(self, failure: Failure) -> None:
        """Call all hooks for failures with this one."""
        for hook in self._failure_hooks:
            try:
                hook(failure)
            except Exception as error:  # noqa: BLE001  # as above
                self._report(hook, error)

    def _report(self, hook: Hook | FailureHook, error: Exception) -> None:
        self._log.report(f"the hook {hook!r} failed", error, id(hook))
