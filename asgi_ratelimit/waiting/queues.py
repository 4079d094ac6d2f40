"""Queues of callers, and of the slots at which they go: booked ones, or places under a limit of active callers.

A caller does not own the slot that it has booked: a queue has a row of waiters and a row of slots, one for each, and
the first waiter goes at the first slot. So when a caller gives up, all callers behind it move up, and the slot to give
back is the newest one, which moves the end of the queue in the store back. No slot has to be passed on.

A caller joins its queue before it books. So callers keep their order, however the answers come, and callers behind one
that gives up meanwhile use its slot. Each slot is used once, given back, or missed. Only the first waiter has a timer
for its slot, and each has one for its deadline.

Callers that spend wait in no such queue for slots, but until others give units back to their buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from threading import RLock
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

from ..background import reset_now_and_in_child
from ..buckets import unescaped
from ..clock import Clock
from ..decision import Charge, Decision, Take
from ..quotas import FixedWindow, TokenBucket
from .drivers import Flow, WakeUp

ORDER = attrgetter("order")

# How long a slot of a token bucket stays good: a caller that wakes later (the machine was asleep) has missed it.
LATE_US = 100_000.0


def key_of(take: Take) -> Any:
    """The key of a queue: any take can use a slot of another take with the same key.

    Callers under a changed limit do not wait behind those that had booked their slots before.
    """
    return tuple([(charge.bucket, charge.cost, charge.quota.stamp) for charge in take.charges])


class Slot(NamedTuple):
    """What lets one waiter go, from ``at_us`` to ``until_us`` on the local clock, at most ``late_us`` after it could.

    ``order`` is as slots were booked: by the clock of the store, then by the order of the takes. ``decision`` is that
    which booked it; ``None`` for a place.
    """

    order: tuple[float, int]
    at_us: float
    until_us: float
    late_us: float
    decision: Any


# The order of a slot that is used before all others, and of places, which are all equal.
FIRST = 0.0, 0
PLACE = Slot(FIRST, 0.0, math.inf, math.inf, None)


def slot_of(decision: Decision, sent_us: float, now_us: float) -> Slot:
    """The slot of a decision that came at ``now_us``; its take was sent to the store at ``sent_us``.

    The store decided at some time between the two. So the slot begins no earlier than in the store, and one of a fixed
    window, which is good until its end, ends no later. A condition, which costs nothing, has no slots. A window has no
    end if it is short beside the time that the store takes to answer: its slots would always be over by then, and a
    caller would book forever.
    """
    wait_us, until_us, late_us = decision.wait_us, math.inf, math.inf
    slot_us, at_us = decision.now_us + wait_us, now_us + wait_us
    for charge in decision.take.charges:
        quota = charge.quota
        if type(quota) is FixedWindow:
            if quota.period_us > 2.0 * (now_us - sent_us):
                until_us = min(until_us, sent_us + wait_us + quota.period_us - slot_us % quota.period_us - 1.0)
        elif charge.cost:
            late_us = min(late_us, LATE_US if type(quota) is TokenBucket else quota.period_us)
    return Slot((slot_us, decision.id), at_us, until_us, late_us, decision)


@dataclass(slots=True, eq=False)
class Queue:
    """The waiters, in their order, and the slots, in the order of their times.

    ``bookings`` are the callers whose slots the store has still to book, also those that are gone, the oldest first.
    ``held`` are the waiters that have a place now, which those of a closed event loop never leave.
    """

    key: Any
    slots: list[Slot]
    waiters: list[Waiter] = field(default_factory=list)
    bookings: dict[Any, None] = field(default_factory=dict)
    held: dict[Waiter, None] = field(default_factory=dict)
    # When the next call may leave, behind those that have left late.
    ready_us: float = -math.inf

    def next_us(self) -> float:
        """When the first waiter can go, as far as is known."""
        return max(self.slots[0].at_us, self.ready_us) if self.slots else math.inf

    def is_booking(self) -> bool:
        """Whether a slot is still to come; those of a closed event loop never will."""
        while self.bookings and next(iter(self.bookings)).is_dead:
            del self.bookings[next(iter(self.bookings))]
        return bool(self.bookings)


class Waiter(WakeUp):
    """A caller in a queue, and the step of its sleep. ``order`` is by priority, and then as the callers came."""

    queue: Queue
    order: tuple[float, int]
    # Whether its call has left, so that it need not depart.
    has_left = False


# Lets the call of a waiter leave, whose slot has come, and says when about the next one of its queue may.
Leave: TypeAlias = Callable[[Waiter, Decision, float], float]


class Queues:
    """Queues by key, each with so many ``places`` at first. Without places, all slots are booked ones.

    Thread-safe; its lock is held for a few instructions, never during a wait.
    """

    def __init__(self, places: int = 0) -> None:
        self.places = places
        reset_now_and_in_child(self)

    def reset(self) -> None:
        """Forget all waiters and slots."""
        self._lock = RLock()  # the garbage collector may call give_up() in here, by closing a forgotten caller
        self._queues: dict[Any, Queue] = {}
        self._numbers = count()
        # The slots that are to be given back.
        self.unused: list[Slot] = []

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, key: Any) -> bool:
        return key in self._queues

    def outbound_rows(self) -> Iterator[dict[str, Any]]:
        """How many callers of this process wait, by the name in the key of their queue."""
        with self._lock:
            buckets = [queue.key[0][0] for queue in self._queues.values() for _ in queue.waiters]
        counts = Counter([unescaped(bucket.partition(":")[0]) for bucket in buckets])
        yield from [{"name": name, "waiting": counts[name]} for name in sorted(counts)]

    def ahead(self, key: Any) -> int:
        """How many callers are at a place, or wait for one."""
        with self._lock:
            queue = self._queues.get(key)
            return 0 if queue is None else self.places - len(queue.slots) + len(queue.waiters)

    def join(self, key: Any, clock: Clock | None, priority: float, deadline_us: float, slot: Any = None) -> Waiter:
        """Wait in a queue, to which it adds a ``slot``. If slots are booked, one without books it: call ``add``."""
        waiter = Waiter(clock, deadline_us)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue(key, [PLACE] * self.places)
            waiter.queue, waiter.order = queue, (-priority, next(self._numbers))
            insort(queue.waiters, waiter, key=ORDER)
            if slot is not None:
                insort(queue.slots, slot, key=ORDER)
            elif self.places:
                for holder in [] if queue.slots else [holder for holder in queue.held if holder.is_dead]:
                    self.leave(holder)
            else:
                queue.bookings[waiter] = None
            self._changed(queue)
            return waiter

    def leave(self, waiter: Waiter) -> None:
        """Stop being active, so that the next caller can go."""
        with self._lock:
            queue = self._queues.get(waiter.queue.key)
            if queue is not None and waiter in queue.held:
                del queue.held[waiter]
                self.add(queue.key, PLACE)

    def add(self, key: Any, slot: Slot | None, waiter: Waiter | None = None) -> None:
        """Add a slot: the one that a waiter was to book, one that a caller has not used, or a place that is free again.

        ``None`` stands for one that was not booked.
        """
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                self.unused += [] if slot is None else [slot]
                return
            if waiter is None:
                queue.ready_us = -math.inf  # one that was to leave has not left
            queue.bookings.pop(waiter, None)
            if slot is not None:
                insort(queue.slots, slot, key=ORDER)
            self._changed(queue)

    def give_up(self, waiter: Waiter) -> None:
        """Stop waiting, unless the waiter has left."""
        with self._lock:
            waiters = waiter.queue.waiters
            at = bisect_left(waiters, waiter.order, key=ORDER)
            if waiters[at : at + 1] == [waiter]:
                del waiters[at]
                self._changed(waiter.queue)

    def slot_for(self, waiter: Waiter, now_us: float, leave: Leave | None = None) -> Slot | None:
        """The first slot, if it has come and this is the first waiter, which then goes; otherwise, it wakes later.

        The first waiter sets the slots aside that were missed.
        """
        with self._lock:
            queue = waiter.queue
            slots, waiters = queue.slots, queue.waiters
            if not waiters or waiters[0] is not waiter:
                waiter.set(math.inf)
                return None
            while slots and now_us > min(slots[0].until_us, queue.next_us() + slots[0].late_us):
                self.unused.append(slots.pop(0))
            if not slots or now_us < slots[0].at_us or (now_us < queue.ready_us and now_us < waiter.deadline_us):
                waiter.set(queue.next_us())
                return None
            del waiters[0]
            slot = slots.pop(0)
            if leave is not None:
                queue.ready_us = leave(waiter, slot.decision, now_us)
            if self.places:
                queue.held[waiter] = None
            self._changed(queue)
            return slot

    def books_anew(self, waiter: Waiter) -> bool:
        """Whether this is the first waiter, and its slot was missed, so that one more is expected from now on."""
        with self._lock:
            queue = waiter.queue
            if queue.waiters[:1] != [waiter] or queue.slots or queue.is_booking():
                return False
            queue.bookings[waiter] = None
            return True

    def take_unused(self) -> list[Slot]:
        """Remove and return the slots that go back, the newest first: it makes way for the others."""
        with self._lock:
            unused, self.unused = self.unused, []
            return sorted(unused, key=ORDER, reverse=True)

    def _changed(self, queue: Queue) -> None:
        """Set the slots aside that nobody waits for, wake the first waiter, and forget a queue of nobody.

        Only the newest slot can be given back, so it waits for those that are being booked. The first waiter wakes when
        its slot comes, or now if slots are lacking. Waiters on closed event loops leave their slots to others.
        """
        waiters, slots = queue.waiters, queue.slots
        while waiters and waiters[0].is_dead:
            del waiters[0]
        while len(slots) > len(waiters) + self.places and not queue.is_booking():
            self.unused.append(slots.pop())
        if waiters and slots:
            if waiters[0].at_us != queue.next_us():
                waiters[0].set(queue.next_us())
        elif waiters and not self.places and not queue.is_booking():
            waiters[0].set(0.0)
        elif not waiters and len(slots) == self.places and not queue.is_booking():
            self._queues.pop(queue.key, None)


class ConcurrencyLimit(Queues):
    """At most ``places`` callers of each key at a time; the others wait, first come, first served."""

    def wait_and_enter(
        self, key: Any, clock: Clock | None, deadline_us: float, priority: float = 0.0
    ) -> Flow[Waiter | None]:
        """Wait until the limit allows one more caller, and become active; ``None`` if the deadline comes first.

        Among the waiting callers, one with a higher ``priority`` goes first. Whoever gets a place has to ``leave`` it.
        """
        waiter = self.join(key, clock, priority, deadline_us)
        try:
            while (place := self.slot_for(waiter, waiter.now())) is None and waiter.now() < deadline_us:
                yield waiter
        finally:
            self.give_up(waiter)
        return None if place is None else waiter


class ReturningUnits:
    """The callers that wait until units come back to a bucket, and the ``spend`` blocks that may return some.

    Thread-safe.
    """

    def __init__(self) -> None:
        reset_now_and_in_child(self)

    def reset(self) -> None:
        """Forget all callers and blocks."""
        self._lock = RLock()  # the garbage collector may enter in here, by closing a forgotten caller or body
        # By bucket; a caller whose event loop was closed is forgotten with its task.
        self._waiting: dict[str, WeakSet[WakeUp]] = {}
        # The takes of the blocks that are under way, by their ``id``.
        self.blocks: dict[int, Take] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def may_come(self, buckets: Collection[str]) -> bool:
        """Whether there is a block on any of these buckets."""
        return any(charge.bucket in buckets for take in list(self.blocks.values()) for charge in take.charges)

    def wake(self, charges: Sequence[Charge]) -> None:
        """Wake the callers of the buckets of these charges, to which units have come back."""
        with self._lock:
            for charge in charges:
                for wake_up in self._waiting.get(charge.bucket, ()):
                    wake_up.set(0.0)

    def add(self, wake_up: WakeUp, buckets: Collection[str]) -> None:
        """Wake a caller from now on when units have come back to one of these buckets."""
        with self._lock:
            for bucket in buckets:
                self._waiting.setdefault(bucket, WeakSet()).add(wake_up)

    def wake_at(self, wake_up: WakeUp, at_us: float) -> None:
        """Wake a caller at ``at_us``, unless units have come back since its time was set to infinity."""
        with self._lock:
            if wake_up.at_us == math.inf:
                wake_up.set(at_us)

    def discard(self, wake_up: WakeUp, buckets: Collection[str]) -> None:
        """Forget a caller."""
        with self._lock:
            for bucket in buckets:
                self._waiting.get(bucket, WeakSet()).discard(wake_up)
                if not self._waiting.get(bucket):
                    self._waiting.pop(bucket, None)
