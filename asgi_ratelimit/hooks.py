"""Hooks: functions of the program that are called with every decision. They see decisions and never change them.

No ``await``, no clock, no lock in this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from .decision import Decision
from .errors import ConfigurationError

logger = logging.getLogger("asgi_ratelimit")


@dataclass(frozen=True, slots=True)
class Event:
    """A ``decision`` of the limiter ``name``.

    With ``decision.shadow`` it was not enforced, and with ``decision.degraded`` it was made without the store.
    """

    name: str
    decision: Decision


Hook: TypeAlias = Callable[[Event], None]
"""A function that is called after each decision, in the event loop, so it must not block."""


class Hooks:
    """Several hooks as one. The first exception of each hook is logged; the request and the other hooks go on.

    Raises ``ConfigurationError`` for a hook that is not callable.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._failed: set[int] = set()
        for hook in self._hooks:
            if not callable(hook):
                raise ConfigurationError(f"a hook is a function of an Event, not {hook!r}: hooks=[print]")

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def __call__(self, name: str, decision: Decision) -> None:
        event = Event(name, decision)
        for hook in self._hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001  # the hook is the user's, and may raise anything
                self._log_once(hook, error)

    def _log_once(self, hook: Hook, error: Exception) -> None:
        if id(hook) not in self._failed:
            self._failed.add(id(hook))
            logger.error("the hook %r failed: %r", hook, error, exc_info=error)
