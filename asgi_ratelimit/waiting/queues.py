"""Queues of the callers of this process that wait for slots of the same charges, and of the slots booked for them.

A caller does not own the slot that it has booked: a queue has a row of waiters and a row of slots, one for each, and
the first waiter goes at the first slot. So when a caller gives up, all callers behind it move up, and the slot to give
back is the newest one, which moves the end of the queue in the store back. No slot has to be passed on.

(Two alternatives are worse. If each caller owned its slot, giving up would take one step for each caller behind it. If
the store moved callers up, they would have to poll it for their new times.)

Each slot is used once, given back, or missed. So the calls are a part of what was booked, and stay within its quota.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice
from threading import RLock

from ..decision import Decision
from .forks import reset_in_child
from .wakeups import WakeUp


@dataclass(slots=True)
class Slot:
    """A booked slot: its time in microseconds of the local clock, and the decision that booked it."""

    at_us: float
    decision: Decision


def _time(slot: Slot) -> float:
    return slot.at_us


@dataclass(slots=True)
class _Queue:
    waiters: OrderedDict[WakeUp, None] = field(default_factory=OrderedDict)
    """Their wake-ups, in the order in which they came."""
    slots: list[Slot] = field(default_factory=list)
    """In the order of their times."""

    def wake_first_in_time(self) -> None:
        """Make sure that the first waiter wakes no later than the first slot; the others matter once they are first."""
        if self.waiters and self.slots:
            first = next(iter(self.waiters))
            if self.slots[0].at_us < first.at_us:
                first.set(self.slots[0].at_us)

    def remove_surplus(self) -> Slot | None:
        """Remove and return the newest slot, if there are more slots than waiters."""
        return self.slots.pop() if len(self.slots) > len(self.waiters) else None


class SlotQueues:
    """All queues over one store. Thread-safe; its lock is held for a few instructions, never during a wait."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all waiters and slots."""
        self._lock = RLock()  # the garbage collector may close a forgotten caller, and so call leave(), in here
        self._queues: dict[Hashable, _Queue] = {}

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._queues)

    def has(self, key: Hashable) -> bool:
        """Whether any caller waits in the queue of ``key``."""
        return key in self._queues

    def join(self, key: Hashable, wake_up: WakeUp, slot: Slot) -> float:
        """Wait at the end of a queue, and add a slot to it; returns the time of its last slot, for the caller."""
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            queue.waiters[wake_up] = None
            insort(queue.slots, slot, key=_time)
            last_us = queue.slots[-1].at_us
            wake_up.set(last_us)
            queue.wake_first_in_time()
            return last_us

    def add(self, key: Hashable, slot: Slot) -> Slot | None:
        """Add a slot in place of a missed one; returns the surplus slot, if there is one now."""
        with self._lock:
            queue = self._queues[key]
            insort(queue.slots, slot, key=_time)
            queue.wake_first_in_time()
            return queue.remove_surplus()

    def take_slot(self, key: Hashable, wake_up: WakeUp, now_us: float) -> Slot | None:
        """Remove and return a slot whose time has come, if enough have come for this waiter and all in front of it.

        If several have come, after a stall, it is the newest one: the older ones expire first.
        Otherwise it returns ``None``, and the waiter sleeps until it is first in the queue.
        """
        with self._lock:
            queue = self._queues[key]
            ready = bisect_right(queue.slots, now_us, key=_time)
            if any(waiter is wake_up for waiter in islice(queue.waiters, ready)):
                return queue.slots.pop(ready - 1)
            wake_up.set(math.inf)
            queue.wake_first_in_time()
            return None

    def swap_for_newest(self, key: Hashable, slot: Slot) -> Slot:
        """Add the slot of a caller that is gone, and remove the newest one, which is to be given back instead."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                return slot
            insort(queue.slots, slot, key=_time)
            queue.wake_first_in_time()
            return queue.slots.pop()

    def leave(self, key: Hashable, wake_up: WakeUp) -> Slot | None:
        """Stop waiting; returns the surplus slot, if there is one now."""
        with self._lock:
            queue = self._queues[key]
            del queue.waiters[wake_up]
            surplus = queue.remove_surplus()
            if queue.waiters:
                queue.wake_first_in_time()
            else:
                del self._queues[key]
            return surplus
