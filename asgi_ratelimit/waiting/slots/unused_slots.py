"""How slots that nobody uses go back to the store."""

from __future__ import annotations

import contextlib

from ...errors import StoreError
from ...stores import Store, settle
from .. import background_loop
from ..drivers import GiveBack, start
from .crowds import Crowds
from .slot import Slot


class UnusedSlots:
    """Gives slots back to one store. While the store is out, they stay booked: later callers wait longer."""

    def __init__(self, store: Store, crowds: Crowds) -> None:
        self._store = store
        self._crowds = crowds

    async def give_back(self, slot: Slot) -> None:
        """Give a slot back."""
        decision = slot.decision
        with contextlib.suppress(StoreError):
            await settle(self._store, decision, [0.0] * len(decision.states), is_unused=True)

    async def give_back_in_turn(self, slot: Slot) -> None:
        """Give a slot back, even if the task is cancelled again; if many tasks do, a few at a time."""
        turn = self._crowds.turn() if self._store.in_process else None
        try:
            if turn is not None:
                await turn
        finally:
            if turn is not None:
                self._crowds.pass_turn()
            await self.giving_back(slot).in_task()

    def giving_back(self, slot: Slot) -> GiveBack:
        """The step that gives a slot back."""
        return GiveBack(self._store, self.give_back(slot))

    def give_back_at_once(self, slot: Slot) -> None:
        """Give a slot back where nothing can be awaited; a store elsewhere keeps it booked."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))

    def give_back_later(self, slot: Slot) -> None:
        """Give a slot back from a callback, which cannot wait for that."""
        if self._store.in_process:
            background_loop.run_in_place(self.give_back(slot))
        else:
            start(self.give_back(slot))
