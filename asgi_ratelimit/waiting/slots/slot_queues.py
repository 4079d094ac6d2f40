"""Queues of the callers of this process that wait for slots of the same charges, and of the slots booked for them.

A caller does not own the slot that it has booked: a queue has a row of waiters and a row of slots, one for each, and
the first waiter goes at the first slot. So when a caller gives up, all callers behind it move up, and the slot to give
back is the newest one, which moves the end of the queue in the store back. No slot has to be passed on.

(Two alternatives are worse. If each caller owned its slot, giving up would take one step for each caller behind it. If
the store moved callers up, they would have to poll it for their new times.)

A caller joins its queue before it books. So callers keep their order, however the answers come, and callers behind one
that gives up meanwhile use its slot. Each slot is used once, given back, or missed. Only the first waiter has a timer.
It goes when its slot has come and the spacing of departures allows it; then it sets the timer of the next waiter.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from itertools import count
from operator import attrgetter
from threading import RLock

from ...buckets import DEFAULT_NAME
from ...decision import Charge, Take
from ...stores import CameBack
from ..background_loop import reset_in_child
from .call_spacing import CallSpacing
from .caller_queue import GRACE_US, Queue, Waiter, fail
from .slot import Slot, is_too_late

_time = attrgetter("at_us")
_order = attrgetter("order")


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


class SlotQueues:
    """All queues over one store. Thread-safe; its lock is held for a few instructions, never during a wait.

    ``is_shared`` says that other processes may have the slots in between.
    """

    def __init__(self, on_the_way_us: float = 0.0, is_shared: bool = False) -> None:
        self._on_the_way_us = on_the_way_us
        self._is_shared = is_shared
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all waiters, slots and departures."""
        self._lock = RLock()  # the garbage collector may call give_up() in here, by closing a forgotten caller
        self._queues: dict[Hashable, Queue] = {}
        self._unused: list[Slot] = []
        """The slots that are to be given back, in the order of their times."""
        self._numbers = count()
        self._spacing = CallSpacing(self._on_the_way_us)
        self._operation_slots = OperationSlots()

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._queues)

    def counts(self) -> Counter[str]:
        """How many callers wait, by the name of their limiter."""
        with self._lock:
            counts: Counter[str] = Counter()
            for queue in self._queues.values():
                if queue.waiters:
                    counts[queue.waiters[0].take.charges[0].name or DEFAULT_NAME] += len(queue.waiters)
            return counts

    def depart(self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float = 0.0) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may."""
        with self._lock:
            return self._spacing.depart(charges, now_us, ahead_us, margin)

    def units_came_back(self, came_back: CameBack) -> None:
        """Uncount units on these buckets: calls that have left cost less than they were counted with."""
        with self._lock:
            buckets = {charge.bucket for charge, units in came_back if self._spacing.give_back(charge.bucket, units)}
            for queue in self._queues.values() if buckets else ():
                charges = queue.waiters[0].take.charges if queue.not_before_us and queue.waiters else ()
                if any(charge.bucket in buckets for charge in charges):
                    queue.not_before_us = 0.0
                    queue.wake_first_in_time()

    def try_use(self, slot: Slot) -> bool:
        """As in ``OperationSlots``."""
        with self._lock:
            return self._operation_slots.try_use(slot)

    def add_unused(self, slot: Slot) -> None:
        """Note that a slot is to be given back."""
        with self._lock:
            insort(self._unused, slot, key=_time)

    def take_unused(self, most: int) -> list[Slot]:
        """Remove and return up to ``most`` slots that are to be given back, the newest first: it makes way."""
        with self._lock:
            unused = self._unused[-most:][::-1]
            del self._unused[-most:]
            return unused

    def try_return(self, slot: Slot) -> bool:
        """As in ``OperationSlots``."""
        with self._lock:
            return self._operation_slots.try_return(slot)

    def has_waiters(self, take: Take) -> bool:
        """Whether any caller waits in the queue of this take."""
        return key_of(take) in self._queues

    def join(self, waiter: Waiter, now_us: float, slot: Slot | None = None) -> None:
        """Wait at the end of a queue, with a slot, or while one is being booked: then ``answered`` must follow."""
        key = key_of(waiter.take)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue(key, has_operation=waiter.take.operation is not None)
            waiter.queue, waiters = queue, queue.waiters
            waiter.came_us = now_us - waiter.waited_us
            queue.drop_dead(waiter.loop)
            waiter.order = order = (-waiter.priority, next(self._numbers))
            if not waiters or waiters[-1].order < order:
                waiters.append(waiter)
                if len(waiters) == 1:  # a slot that one before it has left may be there
                    queue.wake_first_in_time()
            else:
                if waiters[0].at_us <= now_us:  # it has been woken
                    waiters[0].order = (-math.inf, 0)
                insort(waiters, waiter, key=_order)
                queue.wake_first_in_time()
                queue.keep_deadlines(now_us)
            if queue.keeps_deadlines:
                queue.set_deadline(waiter, now_us)
            if slot is None:
                queue.booking += 1
            else:
                queue.add(slot)

    def answered(self, waiter: Waiter, slot: Slot, sent_us: float) -> list[Slot]:
        """Add the slot that was booked for a waiter, or to replace a missed one; return the surplus slots."""
        with self._lock:
            queue = waiter.queue
            assert queue is not None  # it has joined one
            queue.booking -= 1
            if self._is_shared and waiter.waiting.margin:  # other processes may have made the first calls of its burst
                slot.put_off(max([self._spacing.on_the_way_us(each.quota) for each in waiter.take.charges]))
            queue.add_answered(slot, sent_us)
            return self._surplus(queue)

    def failed(self, waiter: Waiter, error: BaseException | None) -> list[Slot]:
        """Handle a failed booking: this waiter, or the first if it has left, gets the error, unless slots suffice.

        Returns the surplus slots.
        """
        with self._lock:
            queue = waiter.queue
            assert queue is not None  # it has joined one
            queue.booking -= 1
            waiting = [each for each in queue.waiters if each.error is None]
            if error is not None and len(waiting) > len(queue.slots) + len(queue.missed) + queue.booking:
                fail(waiter if waiter in waiting else waiting[0], error)
            return self._surplus(queue)

    def swap_for_newest(self, take: Take, slot: Slot) -> Slot | None:
        """Add the slot of a caller that is gone, and return the newest slot, which has to be given back instead."""
        with self._lock:
            queue = self._queues.get(key_of(take))
            if queue is None:
                return slot
            queue.add_answered(slot, -math.inf)
            return queue.remove_surplus()

    def _surplus(self, queue: Queue) -> list[Slot]:
        """Remove and return the slots that nobody waits for, the newest first."""
        surplus = []
        while (slot := queue.remove_surplus()) is not None:
            surplus.append(slot)
        self._drop_if_empty(queue)
        return surplus

    def wait_us(self, waiter: Waiter, now_us: float) -> float:
        """How long a waiter has to wait for the slot at its place in the queue, as far as is known."""
        with self._lock:
            queue = waiter.queue
            if queue is None or waiter.has_left:
                return 0.0
            place = bisect_left(queue.waiters, waiter.order, key=_order)
            return queue.slots[place].at_us - now_us if place < len(queue.slots) else 0.0

    def has_followers(self, waiter: Waiter) -> bool:
        """Whether anyone waits behind a waiter, so that the end of the store's queue is not this waiter's place."""
        with self._lock:
            queue = waiter.queue
            return queue is not None and bool(queue.waiters) and queue.waiters[-1] is not waiter

    def take_slot(self, waiter: Waiter, now_us: float) -> Slot | None:
        """The slot at which a waiter leaves now, or one that it has missed, which has to be booked anew.

        Otherwise it returns ``None``, and the waiter sleeps until it is first in the queue and may leave. Raises the
        error of a waiter that has failed.
        """
        with self._lock:
            slot = None if waiter.error is not None else self._take_slot(waiter, now_us)
        if slot is None and waiter.error is not None:
            raise waiter.error
        return slot

    def _take_slot(self, waiter: Waiter, now_us: float) -> Slot | None:
        queue = waiter.queue
        if queue is None or waiter.has_left:
            waiter.set(math.inf)
            return None
        slots = queue.slots
        if queue.waiters[0] is not waiter:
            self._let_sleep(queue, waiter, math.inf, now_us)
            return None
        if slots and (now_us > slots[0].until_us or waiter.waiting.margin):
            self._set_missed_aside(queue, waiter, now_us)
        at_us = slots[0].at_us - waiter.waiting.lead_us if slots else math.inf
        if at_us > now_us:
            missed = queue.next_missed(waiter)
            if missed is None:
                self._let_sleep(queue, waiter, at_us, now_us)
            return missed
        slot = slots[0]
        following_us = self._leave(queue, waiter, slot, now_us)
        if following_us < 0.0:
            missed = queue.next_missed(waiter)
            if missed is None:
                waiter.set(queue.not_before_us)
            return missed
        del slots[0], queue.waiters[0]
        waiter.has_left = True
        queue.not_before_us = now_us + following_us
        queue.wake_first_in_time(now_us)
        self._drop_if_empty(queue)
        return slot

    def _let_sleep(self, queue: Queue, waiter: Waiter, until_us: float, now_us: float) -> None:
        """Set the wake-up of a waiter that cannot leave yet; or fail one that others overtake, at its deadline."""
        deadline_us = waiter.deadline_us
        if deadline_us < math.inf:
            waiter.error = waiter.error or queue.too_late(waiter, now_us)
            until_us = min(until_us, deadline_us if now_us < deadline_us else now_us + GRACE_US)
        waiter.set(until_us)

    def _set_missed_aside(self, queue: Queue, waiter: Waiter, now_us: float) -> None:
        """Put the slots aside that are not to be used any more: the first waiter goes at the first one that is left."""
        queue.set_missed_aside(now_us)
        if waiter.waiting.margin and self._is_shared:
            while queue.slots and is_too_late(queue.slots[0], queue.following, waiter.take, now_us):
                queue.set_missed_aside(now_us, 1)

    def _leave(self, queue: Queue, waiter: Waiter, slot: Slot, now_us: float) -> float:
        """Record that a waiter leaves, and return the microseconds until the next may; or a negative number.

        Then it may not leave yet. A waiter that repeats an operation is not charged, so it is not recorded either: it
        leaves with the first one. If its slot was given back meanwhile, it has missed it.
        """
        if slot.repeats:
            queue.put_original_first()
        if slot.repeats:
            if self._operation_slots.try_use(slot):
                return 0.0
            queue.set_missed_aside(now_us, 1)
            return -1.0
        if waiter.waiting.departs_later:
            return 0.0
        charges, margin = waiter.take.charges, waiter.waiting.margin
        wait_us = self._spacing.depart(charges, now_us, slot.ahead_us, margin)
        if wait_us > 0.0:
            queue.not_before_us = now_us + wait_us
            return -1.0
        if len(queue.waiters) == 1 or queue.has_operation:
            return 0.0
        return self._spacing.wait_us(charges, now_us, slot.ahead_us, margin)

    def give_up(self, waiter: Waiter) -> Slot | None:
        """Stop waiting; return the surplus slot, if there is one now."""
        with self._lock:
            queue = waiter.queue
            if queue is None or waiter.has_left:
                return None
            waiter.has_left = True
            del queue.waiters[bisect_left(queue.waiters, waiter.order, key=_order)]
            surplus = queue.remove_surplus()
            queue.wake_first_in_time()
            self._drop_if_empty(queue)
            return surplus

    def _drop_if_empty(self, queue: Queue) -> None:
        if not queue.waiters and not queue.booking and self._queues.get(queue.key) is queue:
            del self._queues[queue.key]


def key_of(take: Take) -> Hashable:
    """The key of a queue: any take can use a slot of another take with the same key.

    Callers under a changed limit do not wait behind those that had booked their slots before.
    """
    charges = take.charges
    if len(charges) == 1:
        charge = charges[0]
        return charge.bucket, charge.cost, charge.quota.stamp, take.operation
    return tuple([(charge.bucket, charge.cost, charge.quota.stamp) for charge in charges]), take.operation
