"""What a paced caller does: book a slot, sleep once, go; and what happens if it is cancelled, or wakes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..clock import Clock, time_of
from ..decision import Decision, Take
from ..quotas import SECOND_US
from ..stores import Store, settle
from .drivers import BookSlot, Flow, GiveBack, NewWakeUp, Sleep
from .own_keys import OwnKeyBooking, own_part
from .queues import Slot
from .registry import waiters_of
from .timeouts import as_refused, pace_timeout
from .wakeups import WakeUp

LATE_US = 100_000.0
"""A caller that wakes this much later than its slot (the loop was blocked, the machine asleep) has missed it."""


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock: Clock | None = getattr(store, "clock", None)  # only stores that run on another clock have one
        self.now_us = time_of(self.clock)
        waiters = waiters_of(store)
        self._queues = waiters.slots
        self._own_keys = OwnKeyBooking(store, self.clock, waiters.own_keys, self.try_take)

    def wait(self, take: Take) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until its time has come; returns the decision whose slot is used.

        Callers of equal takes go in the order in which they came. If there are several keys, the last one is shared,
        and one busy key does not hold up the others. Raises ``PaceTimeout`` if the slot is further away than the
        take's ``max_wait``; then nothing is booked.
        """
        decision = yield from self._book(take)
        if decision.delay == 0.0 and not self._queues:
            return decision
        queue = _queue_of(take)
        if decision.delay == 0.0 and not self._queues.has(queue):
            return decision
        return (yield from self._sleep(queue, take, decision))

    def _book(self, take: Take) -> Flow[Decision]:
        own = own_part(take)
        if own is not None:
            return (yield from self._own_keys.book(take, own))
        decision = yield from self.try_take(take)
        if not decision.allowed:
            raise pace_timeout(take, decision)
        return decision

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        decisions: list[Decision] = yield BookSlot(self.store, self.store.take((take,)), self._undo)
        return decisions[0]

    async def _undo(self, decisions: Sequence[Decision]) -> None:
        """Give back what was booked for a caller that is gone by now; the callers behind it move up."""
        await asyncio.sleep(0)  # first, the other callers of the same batch join their queues
        for decision in decisions:
            if decision.allowed and decision.take is not None:
                newest = self._queues.swap_for_newest(_queue_of(decision.take), self._slot(decision))
                await self._give_back(newest.decision)

    async def _give_back(self, decision: Decision) -> None:
        await settle(self.store, decision, [0.0] * len(decision.states))

    def _sleep(self, queue: Hashable, take: Take, decision: Decision) -> Flow[Decision]:
        wake_up: WakeUp = yield NewWakeUp(self.clock)
        last_us = self._queues.join(queue, wake_up, self._slot(decision))
        try:
            too_long_us = last_us - self.now_us() - take.max_wait_us
            if too_long_us > 0.0:  # an earlier slot came free, but it belongs to the callers in front
                raise pace_timeout(take, as_refused(decision, too_long_us))
            slot = yield from self._sleep_until_slot(queue, take, wake_up)
        except GeneratorExit:  # the flow is closed, so no step can run any more
            self._queues.leave(queue, wake_up)
            raise
        except BaseException:
            yield from self._return(self._queues.leave(queue, wake_up))
            raise
        self._queues.leave(queue, wake_up)
        return slot.decision

    def _sleep_until_slot(self, queue: Hashable, take: Take, wake_up: WakeUp) -> Flow[Slot]:
        while True:
            yield Sleep(wake_up)
            slot = self._queues.take_slot(queue, wake_up, self.now_us())
            if slot is None:
                continue
            if self.now_us() - slot.at_us <= LATE_US:
                return slot
            decision = yield from self._book(replace(take, operation=None))  # which stands for the missed slot
            yield from self._return(self._queues.add(queue, self._slot(decision)))

    def _return(self, surplus: Slot | None) -> Flow[None]:
        if surplus is not None:
            yield GiveBack(self.store, self._give_back(surplus.decision))

    def _slot(self, decision: Decision) -> Slot:
        return Slot(self.now_us() + round(decision.delay * SECOND_US), decision)


def _queue_of(take: Take) -> Hashable:
    return take.operation, *[(charge.bucket, charge.quota, charge.cost) for charge in take.charges]
