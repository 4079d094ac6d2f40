"""Lets many callers that come at once go on a few at a time, so that the event loop runs other tasks in between."""

from __future__ import annotations

import asyncio
from collections import deque

from ..forks import reset_in_child

AT_ONCE = 200
"""How many callers book one after another; each of them takes some five microseconds or more."""

FEW = AT_ONCE // 2
"""With at least this many callers, it matters whether they come within one iteration of the event loop."""


class ManyCallers:
    """Counts the callers in one iteration of an event loop. Callers beyond a number wait for their turns."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._count = 0
        self._ahead = 0
        self._turns: dict[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = {}

    def turn(self) -> asyncio.Future[None] | None:
        """``None`` if this caller may go on, or else a future that it has to await, after which it calls ``pass_turn``.

        Callers get their turns in the order in which they came.
        """
        if not self._ahead:
            self._count += 1
            if self._count <= AT_ONCE and self._count != FEW:
                return None
        loop = asyncio._get_running_loop()
        if loop is None:  # the caller finds out by itself
            return None
        if self._count == FEW and not self._ahead:
            loop.call_soon(self._begin_count)
            return None
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._begin(loop)
        turn = loop.create_future()
        turns.append(turn)
        self._ahead += 1
        return turn

    def _begin_count(self) -> None:
        """Start the count of a new iteration of the event loop."""
        self._count = 0

    def pass_turn(self) -> None:
        """Note that a caller has had its turn, or has given up."""
        self._ahead -= 1

    def _begin(self, loop: asyncio.AbstractEventLoop) -> deque[asyncio.Future[None]]:
        for each in list(self._turns):  # callers on the loops of other threads come and go meanwhile
            if each.is_closed():
                self._turns.pop(each, None)
        loop.call_soon(self._next_turns, loop)
        turns = self._turns[loop] = deque[asyncio.Future[None]]()
        return turns

    def _next_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next callers go on, in this iteration of the event loop."""
        turns = self._turns[loop]
        self._count = min(AT_ONCE, len(turns))
        for _ in range(self._count):
            turn = turns.popleft()
            if not turn.done():
                turn.set_result(None)
        if turns:
            loop.call_soon(self._next_turns, loop)
        else:
            del self._turns[loop]
            loop.call_soon(self._begin_count)
