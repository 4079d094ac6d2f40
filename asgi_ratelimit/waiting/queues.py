"""Queues of the callers of this process that wait for slots of the same charges, and of the slots booked for them.

A caller does not own the slot that it has booked: a queue has a row of waiters and a row of slots, one for each, and
the first waiter goes at the first slot. So when a caller gives up, all callers behind it move up, and the slot to give
back is the newest one, which moves the end of the queue in the store back. No slot has to be passed on.

A caller joins its queue before it books. So callers keep their order, however the answers come, and callers behind one
that gives up meanwhile use its slot. Each slot is used once, given back, or missed. Only the first waiter has a timer
for its slot, and each has one for its deadline.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from threading import Lock, RLock
from typing import Any, TypeAlias
from weakref import WeakSet

from ..buckets import DEFAULT_NAME
from ..clock import SystemClock
from ..decision import Decision, Take
from ..quotas import FixedWindow, Quota, TokenBucket
from ..stores import ByStore, CameBack, Store, when_units_come_back
from .concurrency import ConcurrencyLimit, ReturningUnits
from .drivers import WakeUp, reset_in_child
from .spacing import CallSpacing

LATE_US = 100_000.0
"""How long a slot of a token bucket stays good: a caller that wakes later (the machine was asleep) has missed it."""

MOST_ANEW = 50
"""The most missed slots that one call of the store replaces: the event loop runs other tasks in between."""

MOST_REMEMBERED = 1000
"""How many charged slots of operations are remembered: as used by a caller that repeats them, or as given back."""

_time = attrgetter("at_us")
_order = attrgetter("order")


@dataclass(slots=True)
class Slot:
    """A slot from ``at_us`` to ``until_us`` on the local clock, and the decision that booked it."""

    at_us: float
    until_us: float
    decision: Decision


def slot_of(decision: Decision, sent_us: float, now_us: float) -> Slot:
    """The slot of a decision that came at ``now_us``; its take was sent to the store at ``sent_us``.

    The store decided at some time between the two. So the slot begins no earlier than in the store, and one of a window
    ends no later. A condition, which costs nothing, has no slots. Of a decision that is repeated, some of the wait may
    be over. A slot that is over when the answer comes is good nevertheless: otherwise, a caller of a store that takes
    longer to answer than a window lasts would book forever.
    """
    asked_us = decision.asked_us if decision.repeated else decision.now_us
    at_us = now_us + decision.wait_us - (asked_us - decision.now_us)
    until_us = math.inf
    for charge in decision.take.charges:
        if charge.cost and isinstance(charge.quota, TokenBucket):
            until_us = min(until_us, at_us + LATE_US)
        elif charge.cost:
            good_for_us = _good_for_us(charge.quota, decision.now_us + decision.wait_us)
            until_us = min(until_us, at_us - (now_us - sent_us) + good_for_us)
    return Slot(at_us, math.inf if until_us <= now_us else until_us, decision)


def _good_for_us(quota: Quota, slot_us: float) -> float:
    """Microseconds from a slot of a window until it is missed."""
    if isinstance(quota, FixedWindow):
        return quota.period_us - slot_us % quota.period_us - 1.0
    return quota.period_us


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller in a queue. ``bookings`` counts its slots that the store has still to book."""

    take: Take
    queue: Queue
    order: tuple[float, int]
    """By priority, the highest first, and then as the callers came."""
    deadline_us: float = math.inf
    wakes_us: float = math.inf
    """Its deadline, or a moment later."""
    wake_up: WakeUp | None = None
    bookings: int = 0
    loop: asyncio.AbstractEventLoop | None = field(default_factory=_get_running_loop)
    """The event loop of the caller; ``None`` for a thread."""

    def wake_at(self, at_us: float) -> None:
        """Wake at a time, or at the deadline if that is earlier."""
        if self.wake_up is not None:
            self.wake_up.set(min(at_us, self.wakes_us))


@dataclass(slots=True, eq=False)
class Queue:
    """The waiters, in their order, and the slots of the same charges, in the order of their times.

    ``bookings`` counts the slots that the store has still to book, also for callers that are gone.
    """

    key: Hashable
    waiters: list[Waiter] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    bookings: int = 0

    def expect(self, waiter: Waiter, count: int) -> None:
        """Expect so many slots more for a waiter."""
        waiter.bookings += count
        self.bookings += count

    def wake_first(self) -> None:
        """Wake the first waiter when its slot comes, or now if slots are lacking.

        Those on closed event loops leave their slots to others.
        """
        while self.waiters and (loop := self.waiters[0].loop) is not None and loop.is_closed():
            dead = self.waiters.pop(0)
            self.expect(dead, -dead.bookings)  # no answer to it will come
        if self.waiters and self.slots:
            self.waiters[0].wake_at(self.slots[0].at_us)
        elif self.waiters and not self.bookings:
            self.waiters[0].wake_at(0.0)


def key_of(take: Take) -> Hashable:
    """The key of a queue: any take can use a slot of another take with the same key.

    Callers under a changed limit do not wait behind those that had booked their slots before.
    """
    return tuple([(charge.bucket, charge.cost, charge.quota.stamp) for charge in take.charges]), take.operation


class SlotQueues:
    """All queues over one store. Thread-safe; its lock is held for a few instructions, never during a wait."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all waiters and slots."""
        self._lock = RLock()  # the garbage collector may call give_up() in here, by closing a forgotten caller
        self._queues: dict[Hashable, Queue] = {}
        self._numbers = count()
        self._is_used: OrderedDict[int, bool] = OrderedDict()
        """By the ids of decisions on operations: whether a caller that repeats one has left, or it was given back."""
        self.unused: list[Slot] = []
        """The slots that are to be given back."""

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._queues)

    def counts(self) -> Counter[str]:
        """How many callers wait, by the name of their limiter."""
        with self._lock:
            counts: Counter[str] = Counter()
            for queue in self._queues.values():
                for waiter in queue.waiters:
                    counts[waiter.take.charges[0].name or DEFAULT_NAME] += 1
            return counts

    def join(self, take: Take, priority: float) -> Waiter:
        """Wait in a queue while a slot is being booked: then ``booked`` must follow."""
        key = key_of(take)
        with self._lock:
            queue = self._queues.setdefault(key, Queue(key))
            waiter = Waiter(take, queue, (-priority, next(self._numbers)))
            queue.expect(waiter, 1)
            insort(queue.waiters, waiter, key=_order)
            queue.wake_first()
            return waiter

    def booked(self, waiter: Waiter, asked: int, slots: Sequence[Slot]) -> None:
        """Add the slots that were booked for a waiter, of those that were ``asked``."""
        with self._lock:
            waiter.queue.expect(waiter, -asked)
            for slot in slots:
                insort(waiter.queue.slots, slot, key=_time)
            self._set_aside_surplus(waiter.queue)

    def pass_on(self, slot: Slot) -> None:
        """Add a slot at which a caller has not gone."""
        with self._lock:
            queue = self._queues.get(key_of(slot.decision.take))
            if queue is None:
                self.unused.append(slot)
            else:
                insort(queue.slots, slot, key=_time)
                self._set_aside_surplus(queue)

    def give_up(self, waiter: Waiter, *, is_closed: bool = False) -> None:
        """Stop waiting. To a waiter that ``is_closed``, no answer will come."""
        with self._lock:
            queue = waiter.queue
            if is_closed:
                queue.expect(waiter, -waiter.bookings)
            if waiter in queue.waiters:
                queue.waiters.remove(waiter)
            self._set_aside_surplus(queue)

    def leave(self, waiter: Waiter, now_us: float, held_us: float) -> Slot | None:
        """The first slot that has come and is still good, if this is the first waiter, which then leaves.

        Calls that are late hold it up for ``held_us``: so a queue that is held up misses slots, and the store hears of
        it. Otherwise, the first waiter sets the slots aside that were missed, and wakes when the next one comes.
        """
        with self._lock:
            queue = waiter.queue
            slots = queue.slots
            if queue.waiters[:1] != [waiter]:
                waiter.wake_at(math.inf)
                return None
            if waiter.take.operation is not None:  # nobody leaves at a slot that is given back
                slots[:] = [each for each in slots if not self._is_gone(each.decision)]
            at = next((at for at, slot in enumerate(slots) if now_us <= slot.until_us), len(slots))
            if at < len(slots) and slots[at].at_us <= now_us:
                if held_us and not slots[at].decision.repeated:
                    waiter.wake_at(now_us + held_us)
                    return None
                queue.waiters.pop(0)
                slot = slots.pop(at)
                if slot.decision.repeated:
                    self._let_original_go_first(slot, slots)
                self._set_aside_surplus(queue)
                return slot
            if waiter.take.operation is None or not queue.bookings:  # one of them may repeat a slot that was missed
                self.unused += slots[:at]
                slots[:at] = []
                at = 0
            waiter.wake_at(slots[at].at_us if at < len(slots) else math.inf)
            return None

    def _let_original_go_first(self, slot: Slot, others: Sequence[Slot]) -> None:
        """Let a caller of an operation leave at the slot that was charged, if it is there; if not, remember that."""
        for other in others:
            if not other.decision.repeated:
                slot.decision, other.decision = other.decision, slot.decision
                return
        self._note(slot.decision, is_used=True)

    def try_use(self, decision: Decision) -> bool:
        """Whether a caller may leave at once by a decision; one that repeats another then keeps that one booked."""
        with self._lock:
            if self._is_gone(decision):
                return False
            if decision.repeated:
                self._note(decision, is_used=True)
            return True

    def _is_gone(self, decision: Decision) -> bool:
        """Whether a decision repeats one that was given back."""
        return decision.repeated and not self._is_used.get(decision.id, True)

    def _note(self, decision: Decision, *, is_used: bool) -> None:
        if decision.id:  # else nothing was charged
            self._is_used[decision.id] = is_used
            if len(self._is_used) > MOST_REMEMBERED:
                self._is_used.popitem(last=False)

    def lacking(self, waiter: Waiter) -> int:
        """How many slots the first waiter has to book in place of those that were missed; the queue expects them."""
        with self._lock:
            queue = waiter.queue
            lacking = len(queue.waiters) - len(queue.slots) - queue.bookings
            if lacking <= 0 or queue.waiters[0] is not waiter:
                return 0
            queue.expect(waiter, min(lacking, MOST_ANEW))
            return min(lacking, MOST_ANEW)

    def take_unused(self) -> list[Slot]:
        """Remove and return the slots that go back, the newest first: it makes way for the others.

        A slot stays booked that repeats another one, or that a caller of the same operation uses.
        """
        with self._lock:
            unused, self.unused = self.unused, []
            slots = [slot for slot in unused if not (slot.decision.repeated or self._is_used.get(slot.decision.id))]
            for slot in slots:
                if slot.decision.take.operation is not None:
                    self._note(slot.decision, is_used=False)
            return sorted(slots, key=_time, reverse=True)

    def _set_aside_surplus(self, queue: Queue) -> None:
        """Set the slots aside that nobody waits for, and forget a queue in which nothing is left.

        Only the newest slot can be given back, so it waits for those that are being booked. Among the slots of one
        operation, those that repeat another one go first: that one stays booked for the waiters.
        """
        while not queue.bookings and len(queue.slots) > len(queue.waiters):
            newest = range(len(queue.slots) - 1, -1, -1) if queue.slots[0].decision.take.operation else ()
            at = next((at for at in newest if queue.slots[at].decision.repeated), -1)
            self.unused.append(queue.slots.pop(at))
        queue.wake_first()
        if not queue.waiters and not queue.bookings and self._queues.get(queue.key) is queue:
            del self._queues[queue.key]

    def has_waiters(self, take: Take) -> bool:
        """Whether any caller waits in the queue of this take."""
        return bool(self._queues) and key_of(take) in self._queues

    def has_followers(self, waiter: Waiter) -> bool:
        """Whether anyone waits behind a waiter, so that the end of the store's queue is not this waiter's place."""
        return waiter.queue.waiters[-1:] != [waiter]

    def overdue_us(self, waiter: Waiter) -> float:
        """By how much the slot at a waiter's place comes later than its deadline, as far as is known."""
        with self._lock:
            queue = waiter.queue
            place = bisect_left(queue.waiters, waiter.order, key=_order)
            return queue.slots[place].at_us - waiter.deadline_us if place < len(queue.slots) else 0.0


# All callers of a store


@dataclass(slots=True)
class Waiters:
    """The callers that wait over one store: for booked slots, for their departure, in front of their keys, to spend."""

    spacing: CallSpacing
    slots: SlotQueues = field(default_factory=SlotQueues)
    departing: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    """The calls of each bucket that have their slots and wait until they may leave; the first one is active."""
    own_keys: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    spenders: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    """The first caller of each set of buckets is active, the others wait for it."""
    units: ReturningUnits = field(default_factory=ReturningUnits)

    def units_came_back(self, came_back: CameBack) -> None:
        """Uncount the units that came back to buckets, and wake the callers that wait for them."""
        for charge, units in came_back:
            self.spacing.give_back(charge.bucket, units)
        self.units.wake([charge for charge, _ in came_back])


Row: TypeAlias = dict[str, Any]
"""What the page shows of one queue, or of one bucket of a server."""

outbound_sources: WeakSet[Any] = WeakSet()
"""What has outbound queues or has learned limits: objects with ``outbound_rows()``, while they live."""


class _Registry(ByStore[Waiters]):
    """The waiters of every store in use."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Replace the lock."""
        self.lock = Lock()

    def outbound_rows(self) -> Iterator[Row]:
        """How many callers of this process wait for slots, by the name of their limiter."""
        counts = sum([waiters.slots.counts() for waiters in self.values()], Counter[str]())
        for name, waiting in sorted(counts.items()):
            yield {"name": name, "waiting": waiting}


_registry = _Registry()
outbound_sources.add(_registry)


def waiters_of(store: Store) -> Waiters:
    """The waiters of a store, the same for everyone who uses that object."""
    with _registry.lock:
        waiters = _registry.get(store)
        if waiters is None:
            spacing = CallSpacing(is_real=store.clock is None or isinstance(store.clock, SystemClock))
            waiters = _registry[store] = Waiters(spacing)
            when_units_come_back(store, waiters.units_came_back)
        return waiters
