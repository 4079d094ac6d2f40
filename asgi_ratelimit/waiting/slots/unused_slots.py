"""Gives unused slots back to the store, and remembers which slots of operations are used, and which are given back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from ...errors import StoreError
from ...stores import Store, settle
from .. import background_loop
from ..flow_drivers import GiveBack, start
from .many_callers import ManyCallers
from .slot import Slot

MOST_REMEMBERED = 10_000
"""How many slots of operations are remembered as used, and as given back."""


class OperationSlots:
    """The slots of operations that callers of this process have recently used as repeated ones, or given back.

    So no caller goes at a slot that was given back, and no slot is given back at which a caller has gone. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._used: OrderedDict[int, None] = OrderedDict()
        self._given_back: OrderedDict[int, None] = OrderedDict()

    def try_use(self, slot: Slot) -> bool:
        """Note that a caller goes at a slot that repeats another one; return false if that one was given back."""
        return self._note(slot, self._used, self._given_back)

    def try_return(self, slot: Slot) -> bool:
        """Note that a slot goes back to the store; return false if it must not: it repeats another one, or is used."""
        return not slot.repeats and self._note(slot, self._given_back, self._used)

    def _note(self, slot: Slot, noted: OrderedDict[int, None], others: OrderedDict[int, None]) -> bool:
        identity = slot.decision.id
        if identity in others:
            return False
        if identity:  # a repeated slot has the same id
            noted[identity] = None
            if len(noted) > MOST_REMEMBERED:
                noted.popitem(last=False)
        return True


class UnusedSlots:
    """Gives slots back to one store. While the store is out, they stay booked: later callers wait longer.

    ``try_return`` is that of ``SlotQueues``.
    """

    def __init__(self, store: Store, many_callers: ManyCallers, try_return: Callable[[Slot], bool]) -> None:
        self._store = store
        self._many_callers = many_callers
        self._try_return = try_return

    async def give_back(self, slot: Slot) -> None:
        """Give a slot back, unless another caller has booked it, or goes at it, under the same operation."""
        decision = slot.decision
        if decision.take.operation is not None and not self._try_return(slot):
            return
        with contextlib.suppress(StoreError):
            await settle(self._store, decision, [0.0] * len(decision.stored), is_unused=True)

    async def give_back_in_turn(self, slot: Slot) -> None:
        """Give a slot back, even if the task is cancelled again; many tasks do so a few at a time."""
        turn = self._many_callers.turn() if self._store.in_process else None
        try:
            if turn is not None:
                await turn
        finally:
            if turn is not None:
                self._many_callers.pass_turn()
            await self.giving_back(slot).in_task()

    def giving_back(self, slot: Slot) -> GiveBack:
        """The step that gives a slot back."""
        return GiveBack(self._store, partial(self.give_back, slot))

    def give_back_at_once(self, slot: Slot) -> None:
        """Give a slot back in code that cannot await anything; a remote store keeps it booked."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))

    def give_back_later(self, slot: Slot, started: Callable[[asyncio.Task[None]], None]) -> None:
        """Give a slot back from a callback, which cannot wait for that; ``started`` receives the task, if any."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))
            return
        giving_back = start(self._store, self.giving_back(slot).surely())
        giving_back.add_done_callback(partial(self._once_more, slot, started))
        started(giving_back)

    def _once_more(self, slot: Slot, started: Callable[[asyncio.Task[None]], None], ended: asyncio.Task[None]) -> None:
        """A task that gives a slot back has ended: maybe the loop cancelled it at its end, before it began."""
        if ended.cancelled():
            started(start(self._store, self.giving_back(slot).surely()))
