"""What hooks of an ``AdaptiveTransport`` receive: an event for everything that it learns about a server's limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

ChangeKind: TypeAlias = Literal["learned", "limit changed", "migrated", "paused", "pioneer failed"]


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A transport has learned something about a ``bucket`` of a ``host``; ``text`` is a sentence about it.

    ``kind`` is one of

    * ``"learned"``: an answer, or another process, has reported a limit for the first time;
    * ``"limit changed"``: the limit is another one now;
    * ``"migrated"``: requests of a route turn out to use other buckets than before;
    * ``"paused"``: the server has refused a request, and others wait;
    * ``"pioneer failed"``: the first request to an unknown bucket got no answer, or one that reports nothing.

    ``limit`` and ``remaining`` are units, or ``None`` if unknown, and ``paused_for`` is in seconds.
    """

    host: str
    bucket: str
    kind: ChangeKind
    text: str
    limit: float | None
    remaining: float | None
    paused_for: float


ChangeHook: TypeAlias = Callable[[LimitChange], None]
"""A function that is called with each change, in the event loop or thread of a request, so it must not block."""
