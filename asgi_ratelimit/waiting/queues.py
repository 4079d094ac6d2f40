"""Queues: the callers of this process who wait for slots of the same price, and the slots that were booked for them.

A caller does not wait for a slot of its own: there is a row of callers and a row of slots, one for each, and the first
caller goes at the first slot. So when a caller gives up, all behind it move up, and the slot to give back is the
newest, which moves the end of the queue in the store back: nothing has to be handed from one to the next.

(Two other shapes were thought through. If each caller owned its slot, giving up would cost one step for each caller
behind it. If the store moved callers up, they would have to ask it, over and over, where they are now.)

Each slot is used once, or given back, or missed. So the calls are a part of what was booked, and keep its promise.
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
from .wakeups import Alarm


@dataclass(slots=True)
class Slot:
    """A booked slot: when it is, by the local clock, and the decision that booked it."""

    at_us: float
    decision: Decision


def _time(slot: Slot) -> float:
    return slot.at_us


@dataclass(slots=True)
class _Queue:
    callers: OrderedDict[Alarm, None] = field(default_factory=OrderedDict)
    """By their alarms, in the order in which they came."""
    slots: list[Slot] = field(default_factory=list)
    """In the order of their times."""

    def wake_first(self) -> None:
        """The first caller must not sleep past the first slot; the others are seen to when they are first."""
        if self.callers and self.slots:
            first = next(iter(self.callers))
            if self.slots[0].at_us < first.at_us:
                first.set(self.slots[0].at_us)

    def spare(self) -> Slot | None:
        """The newest slot, taken out of the queue, if there are more slots than callers."""
        return self.slots.pop() if len(self.slots) > len(self.callers) else None


class Queues:
    """All queues over one store. Its lock is held for a few instructions, never for a wait. Thread-safe."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget everybody."""
        self._lock = RLock()  # a task that is thrown away leaves when memory is tidied up, which may be in here
        self._queues: dict[Hashable, _Queue] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits at all."""
        return bool(self._queues)

    def has(self, key: Hashable) -> bool:
        """Whether anybody waits in the queue of ``key``."""
        return key in self._queues

    def join(self, key: Hashable, alarm: Alarm, slot: Slot) -> float:
        """Wait as the last in a queue, with a slot more in it; the time of the slot that is the caller's for now."""
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            queue.callers[alarm] = None
            insort(queue.slots, slot, key=_time)
            last = queue.slots[-1].at_us
            alarm.set(last)
            queue.wake_first()
            return last

    def add(self, key: Hashable, slot: Slot) -> Slot | None:
        """One slot more, in place of one that was missed; the slot that is now one too many, if there is one."""
        with self._lock:
            queue = self._queues[key]
            insort(queue.slots, slot, key=_time)
            queue.wake_first()
            return queue.spare()

    def due(self, key: Hashable, alarm: Alarm, now_us: float) -> Slot | None:
        """The latest slot that has come, no longer in the queue, if one has for each caller in front, too.

        The latest, because of several that have come, after a stall, the earlier ones are the first to be too old.
        ``None``, and the alarm set anew, where it is not this caller's turn.
        """
        with self._lock:
            queue = self._queues[key]
            passed = bisect_right(queue.slots, now_us, key=_time)
            if any(caller is alarm for caller in islice(queue.callers, passed)):
                return queue.slots.pop(passed - 1)
            alarm.set(math.inf)
            queue.wake_first()
            return None

    def exchange(self, key: Hashable, slot: Slot) -> Slot:
        """The slot to give back in place of ``slot``, whose caller has gone: the newest one of the queue."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                return slot
            insort(queue.slots, slot, key=_time)
            queue.wake_first()
            return queue.slots.pop()

    def leave(self, key: Hashable, alarm: Alarm) -> Slot | None:
        """Wait no longer; the slot that is now one too many, if there is one."""
        with self._lock:
            queue = self._queues[key]
            del queue.callers[alarm]
            spare = queue.spare()
            if queue.callers:
                queue.wake_first()
            else:
                del self._queues[key]
            return spare
