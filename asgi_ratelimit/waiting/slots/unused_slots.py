"""Gives unused slots back to the store, the newest first: those before it can be given back only then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from ...errors import StoreError
from ...stores import Store, settle
from .. import background_loop
from ..flow_drivers import GiveBack, start
from .many_callers import ManyCallers
from .slot import Slot
from .slot_queues import SlotQueues


class UnusedSlots:
    """Gives slots back to one store. While the store is out, they stay booked: later callers wait longer."""

    def __init__(self, store: Store, many_callers: ManyCallers, queues: SlotQueues) -> None:
        self._store = store
        self._many_callers = many_callers
        self._queues = queues

    async def give_back(self, slot: Slot) -> None:
        """Give a slot back, unless another caller has booked it, or goes at it, under the same operation."""
        decision = slot.decision
        if decision.take.operation is not None and not self._queues.try_return(slot):
            return
        with contextlib.suppress(StoreError):
            await settle(self._store, decision, [0.0] * len(decision.stored), is_unused=True)

    def giving_back(self, slot: Slot) -> GiveBack:
        """The step that gives a slot back, or one that is newer: its own step then gives this one back."""
        self._queues.add_unused(slot)
        return GiveBack(self._store, self._give_newest_back)

    async def _give_newest_back(self) -> None:
        slot = self._queues.newest_unused()
        if slot is None:
            return
        try:
            await self.give_back(slot)
        except BaseException:
            self._queues.add_unused(slot)
            raise

    async def give_back_in_turn(self, slot: Slot) -> None:
        """Give a slot back, even if the task is cancelled again; many tasks do so a few at a time."""
        giving_back = self.giving_back(slot)
        turn = self._many_callers.turn() if self._store.in_process else None
        try:
            if turn is not None:
                await turn
        finally:
            if turn is not None:
                self._many_callers.pass_turn()
            await giving_back.in_task()

    def give_back_at_once(self, slot: Slot) -> None:
        """Give a slot back in code that cannot await anything; a remote store keeps it booked."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))

    def give_back_later(self, slot: Slot, started: Callable[[asyncio.Task[None]], None]) -> None:
        """Give a slot back from a callback, which cannot wait for that; ``started`` receives the task, if any."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))
            return
        giving_back = self.giving_back(slot)
        task = start(self._store, giving_back.surely())
        task.add_done_callback(partial(self._once_more, giving_back, started))
        started(task)

    def _once_more(
        self, giving_back: GiveBack, started: Callable[[asyncio.Task[None]], None], ended: asyncio.Task[None]
    ) -> None:
        """A task that gives a slot back has ended: maybe the loop cancelled it at its end, before it began."""
        if ended.cancelled():
            started(start(self._store, giving_back.surely()))
