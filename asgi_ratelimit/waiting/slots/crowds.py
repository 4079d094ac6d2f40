"""Many callers that come at once: they book a few at a time, so that the event loop runs in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ...clock import monotonic_ns
from ..forks import reset_in_child

AT_ONCE = 200
"""How many takes are booked one after another; each takes some ten microseconds."""

MOMENT_NS = 10_000_000
"""How long a moment is in which so many may be booked."""


class Crowds:
    """Counts what is booked in a moment. Beyond a number, callers of an event loop book later, in their order."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._since_ns = self._count = 0
        self._later: dict[asyncio.AbstractEventLoop, deque[Callable[[], None]]] = {}

    def is_crowded(self) -> bool:
        """Whether the next caller should book later; otherwise, it is counted."""
        if self._later:
            return True
        self._count += 1
        if self._count <= AT_ONCE:
            return False
        now_ns = monotonic_ns()
        if now_ns - self._since_ns < MOMENT_NS:
            return True
        self._since_ns, self._count = now_ns, 0
        return False

    def book_later(self, book: Callable[[], None]) -> None:
        """Call ``book`` on the running event loop, after those of all callers that came before."""
        loop = asyncio.get_running_loop()
        if loop not in self._later:
            for closed in [each for each in self._later if each.is_closed()]:
                del self._later[closed]
            self._later[loop] = deque()
            loop.call_soon(self._book_some, loop)
        self._later[loop].append(book)

    def _book_some(self, loop: asyncio.AbstractEventLoop) -> None:
        later = self._later[loop]
        for _ in range(min(AT_ONCE, len(later))):
            later.popleft()()
        if later:
            loop.call_soon(self._book_some, loop)
        else:
            del self._later[loop]
