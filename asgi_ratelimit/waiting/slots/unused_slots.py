"""Gives unused slots back to the store, the newest first: those before it can be given back only then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from ...decision import settlements_of
from ...errors import StoreError
from ...stores import Store, settle_all
from .. import background_loop
from ..flow_drivers import GiveBack, start
from .slot import Slot
from .slot_queues import SlotQueues

MOST_AT_ONCE = 100
"""The most slots that one call gives back to a remote store; one in this process gets them one by one."""


class UnusedSlots:
    """Gives slots back to one store. While the store is out, they stay booked: later callers wait longer."""

    def __init__(self, store: Store, queues: SlotQueues) -> None:
        self._store = store
        self._queues = queues

    async def give_back(self, slots: Sequence[Slot]) -> None:
        """Give slots back, but none that another caller has booked, or goes at, under the same operation."""
        decisions = [slot.decision for slot in slots if slot.take.operation is None or self._queues.try_return(slot)]
        settlements = [settlements_of(decision, [0.0] * len(decision.stored)) for decision in decisions]
        with contextlib.suppress(StoreError):
            await settle_all(self._store, list(chain.from_iterable(settlements)), is_unused=True)

    def giving_back(self, slot: Slot) -> GiveBack:
        """The step that gives a slot back, or newer ones: then another step gives this one back."""
        self._queues.add_unused(slot)
        return GiveBack(self._store, self._give_newest_back)

    async def _give_newest_back(self) -> None:
        slots = self._queues.take_unused(1 if self._store.in_process else MOST_AT_ONCE)
        try:
            await self.give_back(slots)
        except BaseException:
            for slot in slots:
                self._queues.add_unused(slot)
            raise

    def give_back_at_once(self, slot: Slot) -> None:
        """Give a slot back in code that cannot await anything; a remote store keeps it booked."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back([slot]))

    def give_back_later(self, slot: Slot, started: Callable[[asyncio.Task[None]], None]) -> None:
        """Give a slot back from a callback, which cannot wait for that; ``started`` receives the task, if any."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back([slot]))
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
