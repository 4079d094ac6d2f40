"""Callers that wait for slots of the same charges, each with its own wake-up, and the queue of callers and slots."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeAlias

from ...clock import Clock
from ...decision import Take
from ..timeouts import PaceTimeout, as_refused, pace_timeout
from ..wakeups import LoopWakeUp, ThreadWakeUp
from .slot import Slot, StoreTime, distance_of_slots, is_missed

GRACE_US = 10_000.0
"""How long after its deadline a caller may still go at a slot that came in time, if others overtake it."""

_time = attrgetter("at_us")
_order = attrgetter("order")


@dataclass(slots=True)
class Waiting:
    """The values that the waiters of one ``SlotWaiter`` share; only ``lead_us`` changes."""

    clock: Clock | None
    give_back: Callable[[Slot], None]
    """``UnusedSlots.give_back_at_once``."""
    margin: float = 0.0
    departs_later: bool = False
    """Whether a call still checks for pauses in a store after it has left the queue, and departs only then."""
    lead_us: float = 0.0
    """How long before its slot a call leaves the queue, so that the store has answered when the slot comes."""


class _QueuedCaller:
    """A caller that waits for a slot: its take, its place, and the error that it gets instead, if any.

    ``bookings`` counts those that a remote store has not answered, of its own slot and in place of missed ones.
    ``under_way`` is what a task that is cancelled sees through: these bookings, and what is given back of them.
    ``deadline_us`` is set only where callers move down: others know their slots when they come, at ``came_us``.
    """

    waited_us = 0.0
    """How long it had waited, for its own keys, before it joined a queue."""

    def _begin(self, waiting: Waiting, take: Take, priority: float) -> None:
        self.waiting = waiting
        self.take = take
        self.priority = priority
        self.order: tuple[float, int] = (-priority, 0)
        self.queue: Queue | None = None
        self.came_us = 0.0
        self.deadline_us = math.inf
        self.has_left = False
        self.error: BaseException | None = None
        self.bookings = 0
        self.under_way: tuple[asyncio.Future[Any], ...] = ()

    def add_under_way(self, task: asyncio.Task[None]) -> None:
        """See this task through as well, if the caller is cancelled."""
        self.under_way += (task,)

    @property
    def has_ended(self) -> bool:
        """Whether nothing is under way for it any more."""
        return not self.bookings and all(each.done() for each in self.under_way)

    def left_us(self, now_us: float) -> float:
        """Microseconds until its ``max_wait`` is over; a negative number if it is."""
        return self.take.max_wait_us - (now_us - self.came_us)


class TaskWaiter(_QueuedCaller, LoopWakeUp):
    """A caller in a task."""

    __slots__ = (
        "bookings",
        "came_us",
        "deadline_us",
        "error",
        "has_left",
        "order",
        "priority",
        "queue",
        "take",
        "under_way",
        "waiting",
    )

    def __init__(self, waiting: Waiting, take: Take, priority: float = 0.0) -> None:
        super().__init__(waiting.clock)
        self._begin(waiting, take, priority)


class ThreadWaiter(_QueuedCaller, ThreadWakeUp):
    """A caller in a thread."""

    def __init__(self, waiting: Waiting, take: Take, priority: float = 0.0) -> None:
        super().__init__(waiting.clock)
        self._begin(waiting, take, priority)


Waiter: TypeAlias = TaskWaiter | ThreadWaiter


@dataclass(slots=True)
class NewWaiter:
    """The step that makes a waiter of the kind that its driver can let sleep."""

    waiting: Waiting
    take: Take
    priority: float

    async def in_task(self) -> TaskWaiter:
        return TaskWaiter(self.waiting, self.take, self.priority)

    def in_thread(self) -> ThreadWaiter:
        return ThreadWaiter(self.waiting, self.take, self.priority)


def fail(waiter: Waiter, error: BaseException) -> None:
    """Wake a caller, which then raises this error. Thread-safe."""
    waiter.error = error
    waiter.set(0.0)


@dataclass(slots=True)
class Queue:
    """The waiters and the slots of the same charges."""

    key: Hashable
    waiters: list[Waiter] = field(default_factory=list)
    """By priority, the highest first, and then in the order in which they came."""
    slots: list[Slot] = field(default_factory=list)
    """In the order of their times."""
    missed: deque[Slot] = field(default_factory=deque)
    """Slots whose time is over: before the first waiter sleeps, it books another one in place of each."""
    keeps_deadlines: bool = False
    """Whether callers have moved down, for a higher priority or a missed slot: each wakes at its deadline as well."""
    has_operation: bool = False
    """Whether its callers take under one operation, so that some of the slots repeat others."""
    booking: int = 0
    """How many slots are being booked."""
    not_before_us: float = 0.0
    """The earliest time at which a waiter may leave, because of calls that have left."""
    store_time: StoreTime = field(default_factory=StoreTime)

    def wake_first_in_time(self, now_us: float | None = None) -> None:
        """Make sure that the first waiter wakes no later than the first slot; the others matter once they are first.

        ``now_us`` is the current time.
        """
        if self.waiters and (self.slots or self.missed):
            first, at_us = self.waiters[0], 0.0
            if not self.missed:
                at_us = max(self.slots[0].at_us - first.waiting.lead_us, self.not_before_us)
            if at_us < first.at_us:
                first.set(at_us, now_us)

    def drop_dead(self, running: asyncio.AbstractEventLoop | None) -> None:
        """Drop the first waiters, if their event loop is closed: they can never go, and leave their slots to others."""
        while self.waiters and (loop := self.waiters[0].loop) is not running and loop is not None and loop.is_closed():
            dead = self.waiters.pop(0)
            dead.has_left = True
            self.booking -= dead.bookings  # no answer to them will come
            dead.bookings = 0
            self.wake_first_in_time()

    @property
    def following(self) -> Slot | None:
        """The second slot."""
        return self.slots[1] if len(self.slots) > 1 else None

    def set_missed_aside(self, now_us: float, at_least: int = 0) -> None:
        """Put the first slots aside as missed, so many of them at least, if their time is over."""
        slots, count = self.slots, at_least
        while count < len(slots) and is_missed(slots[count], now_us):
            count += 1
        if count:
            self.missed.extend(slots[:count])
            del slots[:count]
            self.keep_deadlines(now_us)

    def next_missed(self, waiter: Waiter) -> Slot | None:
        """The oldest slot that was missed, if there is any: the first waiter books another one, and stays awake."""
        if not self.missed:
            return None
        self.booking += 1
        waiter.at_us = 0.0
        return self.missed.popleft()

    def keep_deadlines(self, now_us: float) -> None:
        """Let all waiters wake at their deadlines: some move down."""
        if not self.keeps_deadlines:
            self.keeps_deadlines = True
            for each in self.waiters:
                self.set_deadline(each, now_us)

    def set_deadline(self, waiter: Waiter, now_us: float) -> None:
        """Let a waiter wake when its ``max_wait`` is over, if it has one and does not wake by now."""
        if waiter.take.max_wait_us < math.inf and waiter.deadline_us == math.inf:
            waiter.deadline_us = waiter.came_us + waiter.take.max_wait_us
            if now_us < waiter.at_us > waiter.deadline_us:
                waiter.set(waiter.deadline_us, now_us)

    def too_late(self, waiter: Waiter, now_us: float) -> PaceTimeout | None:
        """The error for a waiter whose deadline is over, unless the slot at its place is in time: then it goes soon.

        Waiters ahead may hold it up only for a moment, because more of them may still overtake it.
        """
        deadline_us = waiter.deadline_us
        if now_us < deadline_us or not self.slots:
            return None
        place = bisect_left(self.waiters, waiter.order, key=_order)
        slot = self.slots[min(place, len(self.slots) - 1)]
        if slot.at_us <= deadline_us and now_us < deadline_us + GRACE_US:
            return None
        over = replace(waiter.take, max_wait=0.0)
        return pace_timeout(over, as_refused(slot.decision, slot.at_us - now_us), waiter.take.max_wait)

    def add(self, slot: Slot) -> None:
        """Add a slot."""
        slots = self.slots
        if not slots or slots[-1].at_us <= slot.at_us:
            slots.append(slot)
        else:
            insort(slots, slot, key=_time)
        if slots[0] is slot:
            self.wake_first_in_time()

    def add_answered(self, slot: Slot, sent_us: float) -> None:
        """Add a slot whose take was sent at ``sent_us``.

        Evenly spaced slots do not begin later because their answers came late. With bursts, a later beginning does no
        harm, and gives the first calls time to arrive.
        """
        if not distance_of_slots(slot.take):
            self.add(slot)
            return
        now_us = slot.since_us
        ahead_us = self.store_time.ahead_us(now_us + slot.ahead_us, sent_us, now_us)
        if slot.ahead_us == ahead_us:
            for each in self.slots:
                each.move_up(ahead_us)
            self.wake_first_in_time()
        else:
            slot.move_up(ahead_us)
        self.add(slot)

    def put_original_first(self) -> None:
        """If the first slot repeats another one of this queue, let the two change places."""
        first = self.slots[0]
        for slot in self.slots:
            if first.repeats and not slot.repeats and slot.decision.id == first.decision.id:
                first.decision, slot.decision = slot.decision, first.decision

    def remove_surplus(self) -> Slot | None:
        """Remove and return the newest slot, if there are more slots than waiters; one that was missed before that.

        Only the newest slot can be given back, so it waits for those that are being booked. Among the slots of one
        operation, it is the newest that repeats another one: the others stay booked for the waiters.
        """
        slots = self.slots
        if self.booking or len(slots) + len(self.missed) <= len(self.waiters):
            return None
        if self.missed:
            return self.missed.pop()
        if self.has_operation:
            for at in reversed(range(len(slots))):
                if slots[at].repeats:
                    return slots.pop(at)
        return slots.pop()
