"""The flow of a caller who waits for its turn: book a slot, sleep once, go."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

from ..clock import time_of
from ..decision import Decision, Take
from ..quotas import SECOND_US
from ..stores import Store, settle
from .drivers import Book, Flow, GiveBack, NewAlarm, Sleep
from .own_keys import OwnKeys, own_part, refused, too_far
from .queues import Slot
from .registry import room_of
from .wakeups import Alarm

LATE_US = 100_000.0
"""A caller that wakes so much later than its slot (the loop was blocked, the machine asleep) has missed it."""


class Turns:
    """Whose turn it is, among all callers of one store in this process: tasks of any event loop, and threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = getattr(store, "clock", None)
        self.now_us = time_of(self.clock)
        room = room_of(store)
        self._queues = room.queues
        self._own_keys = OwnKeys(store, self.clock, room.gates, self._ask)

    def wait(self, take: Take) -> Flow[Decision]:
        """Book a slot for ``take`` and wait until it has come; the decision whose slot was used in the end.

        Callers of equal takes go in the order in which they came. Where there are several keys, the last one is shared,
        and one busy key does not hold up the others. Raises ``PaceTimeout`` where the slot is further away than the
        take waits, and then nothing is booked.
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
        decision = yield from self._ask(take)
        if not decision.allowed:
            raise too_far(take, decision)
        return decision

    def _ask(self, take: Take) -> Flow[Decision]:
        decisions: list[Decision] = yield Book(self.store, self.store.take((take,)), self._undo)
        return decisions[0]

    async def _undo(self, decisions: Sequence[Decision]) -> None:
        """Give back what was booked for a caller that has gone meanwhile; those behind it move up."""
        await asyncio.sleep(0)  # those who were answered together with it have to be in their queues first
        for decision in decisions:
            if decision.allowed and decision.take is not None:
                spare = self._queues.exchange(_queue_of(decision.take), self._slot(decision)).decision
                await self._give_back(spare)

    async def _give_back(self, decision: Decision) -> None:
        await settle(self.store, decision, [0.0] * len(decision.states))

    def _sleep(self, queue: Hashable, take: Take, decision: Decision) -> Flow[Decision]:
        alarm: Alarm = yield NewAlarm(self.clock)
        last_us = self._queues.join(queue, alarm, self._slot(decision))
        try:
            too_long_us = last_us - self.now_us() - take.max_wait_us
            if too_long_us > 0.0:  # a slot came free, which is for those who came before
                raise too_far(take, refused(decision, too_long_us))
            slot = yield from self._due(queue, take, alarm)
        except GeneratorExit:  # nobody is left to carry out a step
            self._queues.leave(queue, alarm)
            raise
        except BaseException:
            yield from self._return(self._queues.leave(queue, alarm))
            raise
        self._queues.leave(queue, alarm)
        return slot.decision

    def _due(self, queue: Hashable, take: Take, alarm: Alarm) -> Flow[Slot]:
        while True:
            yield Sleep(alarm)
            slot = self._queues.due(queue, alarm, self.now_us())
            if slot is None:
                continue
            if self.now_us() - slot.at_us <= LATE_US:
                return slot
            decision = yield from self._book(take)
            yield from self._return(self._queues.add(queue, self._slot(decision)))

    def _return(self, spare: Slot | None) -> Flow[None]:
        if spare is not None:
            yield GiveBack(self.store, self._give_back(spare.decision))

    def _slot(self, decision: Decision) -> Slot:
        return Slot(self.now_us() + round(decision.delay * SECOND_US), decision)


def _queue_of(take: Take) -> Hashable:
    return tuple([(charge.bucket, charge.quota, charge.cost) for charge in take.charges])
