"""Hooks: what a program is told of every decision. They see decisions and never change them.

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
    """A decision that was made: ``decision``, by the limiter ``name``.

    ``decision.shadow`` says that it was not enforced, ``decision.degraded`` that it was made without the store.
    """

    name: str
    decision: Decision


Hook: TypeAlias = Callable[[Event], None]
"""Is called after each decision, in the event loop: it must not block."""


class Hooks:
    """Several hooks as one. One that raises is logged the first time, and harms neither the request nor the others.

    Raises ``ConfigurationError`` for what cannot be called.
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
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                self._log_once(hook, error)

    def _log_once(self, hook: Hook, error: Exception) -> None:
        if id(hook) not in self._failed:
            self._failed.add(id(hook))
            logger.error("the hook %r failed: %r", hook, error, exc_info=error)
