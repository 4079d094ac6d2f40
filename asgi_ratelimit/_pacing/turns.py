"""The flow of a caller who waits for its turn: book a slot, sleep once, go."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..algorithms import settlement_of
from ..clock import time_of
from ..decision import Decision, Take
from ..errors import PaceTimeout
from ..quotas import SECOND_US
from ..stores import Store
from .alarms import Alarm
from .queues import Slot, queues_of
from .steps import Book, Flow, GiveBack, NewAlarm, Sleep

LATE_US = 100_000.0
"""A caller that wakes so much later than its slot (the loop was blocked, the machine asleep) has missed it."""


class Turns:
    """Whose turn it is, among all callers of one store in this process: tasks of any event loop, and threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = getattr(store, "clock", None)
        self.now_us = time_of(self.clock)
        self._queues = queues_of(store)

    def wait(self, take: Take) -> Flow[Decision]:
        """Book a slot for ``take`` and wait until it has come; the decision whose slot was used in the end.

        Callers of equal takes go in the order in which they came. Raises ``PaceTimeout`` where the slot is further
        away than the take waits, and then nothing is booked.
        """
        decision = yield from self._book(take)
        if decision.delay == 0.0 and not self._queues:
            return decision
        queue = _queue_of(take)
        if decision.delay == 0.0 and not self._queues.has(queue):
            return decision
        return (yield from self._sleep(queue, take, decision))

    def _book(self, take: Take) -> Flow[Decision]:
        decision: Decision = (yield Book(self.store, self.store.take((take,)), self._undo))[0]
        if not decision.allowed:
            raise too_far(take, decision)
        return decision

    async def _undo(self, decisions: Sequence[Decision]) -> None:
        """Give back what was booked for a caller that has gone meanwhile; those behind it move up."""
        for decision in decisions:
            if decision.allowed and decision.take is not None:
                spare = self._queues.exchange(_queue_of(decision.take), self._slot(decision)).decision
                await self._give_back(spare)

    async def _give_back(self, decision: Decision) -> None:
        settlement = settlement_of(decision, [0.0] * len(decision.states))
        if settlement is not None and not decision.settled:
            await self.store.settle(settlement)
            decision.settled = True

    def _sleep(self, queue: Hashable, take: Take, decision: Decision) -> Flow[Decision]:
        alarm: Alarm = yield NewAlarm(self.clock)
        last_us = self._queues.join(queue, alarm, self._slot(decision))
        try:
            too_long_us = last_us - self.now_us() - take.max_wait_us
            if too_long_us > 0.0:  # a slot came free, which is for those who came before
                raise too_far(take, _refused(decision, too_long_us))
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


def too_far(take: Take, decision: Decision) -> PaceTimeout:
    """What to raise where ``take`` was refused."""
    key = take.charges[0].key
    if decision.degraded:
        return PaceTimeout(f"no slot for {key!r}: the store is out, and its on_error refuses", decision)
    away = take.max_wait + decision.retry_after
    return PaceTimeout(f"the next slot for {key!r} is {away:.6g} s away, max_delay is {take.max_wait:g} s", decision)


def _refused(decision: Decision, too_long_us: float) -> Decision:
    retry_after = too_long_us / SECOND_US
    return replace(decision, allowed=False, granted=0, delay=0.0, retry_after=retry_after)


def _queue_of(take: Take) -> Hashable:
    return tuple([(charge.bucket, charge.quota, charge.cost) for charge in take.charges])
