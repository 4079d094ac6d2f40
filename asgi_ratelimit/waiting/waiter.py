"""The wait of a paced caller: book a slot, sleep once, leave; and what happens if it is cancelled.

A take over several keys, the last of which is shared (10 in 10 seconds for each guild, and 50/s for all of them), is
not booked ahead: a slot booked far ahead in the own quota would keep a part of the shared quota unused until then, and
one busy key would stop all the others. One caller of an own key at a time sleeps until its own quota allows the take,
waits for its turn at the shared quota, and takes all charges at once when they fit, or nearly so.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakSet

from ..algorithms import decide, wait
from ..buckets import DEFAULT_NAME
from ..clock import SystemClock, time_of
from ..decision import Charge, Decision, Take, is_outage, settlements_of
from ..errors import RateLimitError, StoreError
from ..quota_text import readable
from ..quotas import SECOND_US
from ..stores import ByStore, CameBack, Store, settle_all, when_units_come_back
from ..stores.base import living
from .concurrency import ConcurrencyLimit, ReturningUnits
from .drivers import Book, CallStore, Flow, GiveBack, reset_in_child, sleep
from .queues import LATE_US, Queue, Queues, Slot, Waiter, key_of, slot_of
from .spacing import CallSpacing

OUT = "; the store is out, and this process limits with its share of the quota"


class PaceTimeout(RateLimitError, TimeoutError):
    """Raised when the next free slot is further away than ``max_delay``; nothing is booked.

    ``decision`` is the refusal: its ``retry_after`` says how much longer the caller would have to wait.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message)
        self.decision = decision

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.decision)


def pace_timeout(take: Take, decision: Decision, max_delay: float | None = None) -> PaceTimeout:
    """The error for a take that was refused with this decision.

    ``max_delay`` is the total wait that the caller accepted, if the take has only the rest of it, which is quoted
    unless nearly nothing was spent.
    """
    charge = take.charges[0]
    name = charge.name or DEFAULT_NAME
    paced = f"{name!r} for {charge.key!r}" if charge.key else repr(name)
    if is_outage(decision):
        return PaceTimeout(f"no slot of {paced}: the store is out, and its on_error refuses", decision)
    if decision.retry_after == math.inf:
        return PaceTimeout(
            f"no slot of {paced}, ever: the cost is above what {readable(decision.quota)} can give", decision
        )
    away, left = take.max_wait + decision.retry_after, ""
    if max_delay is None:
        max_delay = take.max_wait
    elif take.max_wait < 0.99 * max_delay:
        left = f", of which {take.max_wait:.6g} s are left"
    text = f"the next slot of {paced} is {away:.6g} s away, max_delay is {max_delay:g} s{left}"
    return PaceTimeout(text + (OUT if decision.degraded else ""), decision)


@contextlib.contextmanager
def of_all(take: Take, max_delay: float) -> Iterator[None]:
    """Let a ``PaceTimeout`` of a take that has only the rest of ``max_delay`` also quote ``max_delay``."""
    try:
        yield
    except PaceTimeout as error:
        if take.max_wait >= max_delay:
            raise
        raise pace_timeout(take, error.decision, max_delay) from None


def as_refused(decision: Decision, too_long_us: float) -> Decision:
    """The decision for a caller that would have to wait ``too_long_us`` microseconds longer than it is willing to."""
    is_patient = decision.take.max_wait == math.inf
    take = replace(decision.take, max_wait=0.0) if is_patient else decision.take
    return replace(decision, take=take, allowed=False, wait_us=take.max_wait_us + max(too_long_us, 0.0), id=0)


Renewed: TypeAlias = Callable[[Take], Take]
"""Returns a take of the same buckets, under the quotas that now apply."""

GRACE_US = 10_000.0
"""How much later than its slot a caller may leave although its longest wait is over."""

NEARLY_US = 20_000.0
"""How far ahead a take over several keys is booked, for a sleep and a call to the store that take longer than foreseen.

What another process takes from the own quota in that time may keep the shared one unused for this long.
"""

SHORTEST_US = 1_000.0
"""The shortest sleep before another look at a store that does not book ahead, as a cluster with keys on many nodes."""


def unchanged(take: Take) -> Take:
    """The take under the quotas that it came with."""
    return take


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread.

    ``margin`` is the part by which the limits of its takes are lower than the rate at which calls may leave.
    ``renewed`` returns a take under the quotas that now apply, for callers that have waited and booked nothing.
    """

    def __init__(self, store: Store, *, margin: float = 0.0, renewed: Renewed = unchanged) -> None:
        self.store = store
        clock = store.clock
        self.now_us = time_of(clock)
        self.clock = None if isinstance(clock, SystemClock) else clock
        self._waiters = waiters_of(store)
        self._queues = self._waiters.slots
        self._margin = margin
        self._renewed = renewed

    def wait(self, take: Take, priority: float = 0.0) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until the call may leave; return the decision whose slot is used.

        Callers of equal takes go in the order in which they came, but those with a higher ``priority`` go first. If
        there are several keys, the last one is shared, and its callers take turns by their other keys. A take under an
        operation keeps its slot, whatever becomes of its caller: the next caller of the operation gets it. Raises
        ``PaceTimeout`` if the slot is further away than the take's ``max_wait``; then nothing is booked.
        """
        decision = yield from self.wait_for_slot(take, priority)
        try:
            yield from self.depart(decision)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.pass_on(decision)
            raise
        return decision

    def wait_for_slot(self, take: Take, priority: float = 0.0) -> Flow[Decision]:
        """As ``wait``, for a caller that lets the call ``depart`` itself, or passes the slot on, when it has come."""
        deadline_us, own = self.now_us() + take.max_wait_us, own_charges(take)
        if own:
            return (yield from self._wait_with_own_keys(take, own, priority, deadline_us))
        decision = yield from self._book_and_sleep(take, take.max_wait, priority, deadline_us)
        if not decision.allowed:
            raise pace_timeout(take, decision)
        return decision

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        decision: Decision = yield Book(self.store, take, partial(self._undo, self.now_us(), None))
        return decision

    def depart(self, decision: Decision) -> Flow[None]:
        """Wait until a call whose slot has come may leave, behind the earlier ones of its first bucket; it then leaves.

        A call under an operation that another one has booked does not count.
        """
        take, departing = decision.take, self._waiters.departing
        if decision.repeated or (not departing and not self._spacing_us(take)):
            return
        place = yield from self._enter(departing, take.charges[0].bucket, take, math.inf)
        try:
            while wait_us := self._spacing_us(take):
                yield from sleep(self.clock, wait_us)
        finally:
            departing.leave(place)

    def _spacing_us(self, take: Take, *, leaves: bool = True) -> float:
        """As ``CallSpacing.depart``."""
        return self._waiters.spacing.depart(take.charges, self.now_us(), self._margin, leaves=leaves)

    def _held_us(self, take: Take) -> float:
        """How long those that have left late hold a call up, if any wait to depart."""
        return self._spacing_us(take, leaves=False) if self._waiters.departing else 0.0

    def pass_on(self, decision: Decision, *, has_departed: bool = False) -> Flow[None]:
        """Let the next caller that waits for an equal take go now, at a slot that was not used."""
        if has_departed:
            self._waiters.units_came_back([(charge, charge.cost) for charge in decision.take.charges])
        if decision.take.operation is None:
            now_us = self.now_us()
            self._queues.add(Slot(key_of(decision.take), now_us, now_us + LATE_US, decision))
        yield from self._give_back()

    # In a queue

    def _book_and_sleep(self, take: Take, max_wait: float, priority: float, deadline_us: float) -> Flow[Decision]:
        """Book a slot at most ``max_wait`` seconds ahead, and wait until it has come: its decision, or the refusal."""
        if take.operation is not None:
            return (yield from self._book_operation(replace(take, max_wait=max_wait), deadline_us))
        waiter = self._queues.join(key_of(take), self.clock, priority, bookings=1)
        try:
            if priority and not waiter.is_last:  # the slot at the end of the queue is not for this one
                max_wait = math.inf
            booked = take if max_wait == take.max_wait else replace(take, max_wait=max_wait)
            decision = yield from self._book(waiter.queue, booked)
            if decision.allowed:
                if max_wait == take.max_wait:  # so the store has found, however late it has answered
                    deadline_us = max(deadline_us, self.now_us() + decision.wait_us + GRACE_US)
                waiter.deadline_us = deadline_us
                return (yield from self._sleep(waiter, take, decision))
        except BaseException as error:
            self._queues.give_up(waiter)
            if not isinstance(error, GeneratorExit):  # else nothing more can be awaited
                yield from self._give_back()
            raise
        self._queues.give_up(waiter)
        return decision

    def _sleep(self, waiter: Waiter, take: Take, decision: Decision) -> Flow[Decision]:
        """Sleep until the slot at a waiter's place has come, and return its decision."""
        while True:
            now_us = self.now_us()
            slot = self._queues.slot_for(waiter, now_us, partial(self._held_us, take))
            if slot is not None:
                return slot.decision  # type: ignore[no-any-return]  # it was booked
            yield from self._give_back()
            if waiter.is_first and waiter.queue.lacks_slots:  # its slot was missed
                anew = replace(take, max_wait=math.inf)
                self._queues.expect(waiter.queue)
                decision = yield from self._book(waiter.queue, anew)
                if not decision.allowed:
                    raise pace_timeout(anew, decision)
            elif now_us >= waiter.deadline_us:
                last_us = max([slot.at_us for slot in waiter.queue.slots], default=now_us)
                left = replace(take, max_wait=0.0)
                raise pace_timeout(left, as_refused(replace(decision, take=left), last_us - now_us), take.max_wait)
            else:
                yield waiter.wake_up

    def _book(self, queue: Queue, take: Take) -> Flow[Decision]:
        """Book a slot for a queue that expects it."""
        sent_us = self.now_us()
        try:
            decision: Decision = yield Book(self.store, take, partial(self._undo, sent_us, queue))
        except (Exception, GeneratorExit):
            self._queues.booked(queue, None)
            raise
        slot = slot_of(queue.key, decision, sent_us, self.now_us()) if decision.allowed else None
        self._queues.booked(queue, slot)
        yield from self._give_back()
        return decision

    async def _undo(self, sent_us: float, queue: Queue | None, decision: Decision | None) -> None:
        """Let the next caller have the slot of one that was cancelled while it booked."""
        slot = None
        if decision is not None and decision.allowed and decision.take.operation is None:
            slot = slot_of(key_of(decision.take), decision, sent_us, self.now_us())
        if queue is not None:
            self._queues.booked(queue, slot)
        elif slot is not None:
            self._queues.add(slot)
        await self._return()

    def _book_operation(self, take: Take, deadline_us: float) -> Flow[Decision]:
        """As ``_book_and_sleep``, for a slot that belongs to an operation, and not to its callers."""
        decision = yield from self.try_take(take)
        if decision.allowed:
            passed_us = decision.asked_us - decision.now_us if decision.repeated else 0.0
            slot_us = self.now_us() + decision.wait_us - passed_us
            if decision.repeated and slot_us > deadline_us:
                raise pace_timeout(take, as_refused(decision, slot_us - deadline_us))
            yield from sleep(self.clock, slot_us - self.now_us())
        return decision

    def _give_back(self) -> Flow[None]:
        if self._queues.unused:
            yield GiveBack(self.store, self._return)

    async def _return(self) -> None:
        """Give unused slots back to the store."""
        unused = self._queues.take_unused()
        settlements = [settlements_of(slot.decision, [0.0] * len(slot.decision.stored)) for slot in unused]
        try:
            await settle_all(self.store, list(chain.from_iterable(settlements)), is_unused=True)
        except StoreError:
            pass  # while the store is out, they stay booked: later callers wait longer
        except BaseException:
            self._queues.unused += unused
            raise

    # In front of own keys

    def _wait_with_own_keys(
        self, take: Take, own: tuple[Charge, ...], priority: float, deadline_us: float
    ) -> Flow[Decision]:
        """``wait_for_slot`` for several keys."""
        own_keys, key = self._waiters.own_keys, tuple([charge.bucket for charge in own])
        turn = "shared", take.charges[-1].bucket
        if take.max_wait < math.inf:
            shared = tuple([charge for charge in take.charges if charge not in own])
            yield from self._require_near(take, own, 0 if priority > 0.0 else own_keys.ahead(key))
            yield from self._require_near(take, shared, own_keys.ahead(turn))
        places = [(yield from self._enter(own_keys, key, take, deadline_us, priority))]
        try:
            while True:
                take = self._renewed(take)
                if len(places) == 1 and own_keys.ahead(turn):
                    places.append((yield from self._enter(own_keys, turn, take, deadline_us)))
                decision = yield from self._book_and_sleep(take, NEARLY_US / SECOND_US, 0.0, deadline_us)
                if decision.allowed:
                    return decision
                own_us, wait_us = self._waits_in_time(take, decision, deadline_us)
                wait_us = own_us if own_us > NEARLY_US else wait_us
                wakes_us = self.now_us() + (wait_us - NEARLY_US if wait_us > NEARLY_US else max(wait_us, SHORTEST_US))
                if own_us > NEARLY_US and len(places) > 1:
                    own_keys.leave(places.pop())
                elif own_us <= NEARLY_US and len(places) == 1:
                    places.append((yield from self._enter(own_keys, turn, take, deadline_us)))
                yield from sleep(self.clock, wakes_us - self.now_us())
        finally:
            for place in places:
                own_keys.leave(place)

    def _enter(
        self, callers: ConcurrencyLimit, key: Any, take: Take, deadline_us: float, priority: float = 0.0
    ) -> Flow[Slot]:
        """Wait until no other caller of a key is about to take. Raises ``PaceTimeout`` if the deadline comes first."""
        place = yield from callers.wait_and_enter(key, self.clock, deadline_us, priority)
        if place is None:
            peeked: Decision = yield CallStore(self.store, self.store.peek(take))
            raise pace_timeout(take, as_refused(peeked, peeked.wait_us))
        return place

    def _require_near(self, take: Take, part: tuple[Charge, ...], ahead: int) -> Flow[None]:
        """Raise ``PaceTimeout`` if some keys cannot allow a take in time, after the callers ahead of this one."""
        peeked: Decision = yield CallStore(self.store, self.store.peek(Take(part)))
        states = list(peeked.stored)
        for _ in range(ahead + 1):
            wait_us, after = decide(part, states, peeked.now_us, take.max_wait_us)
            if after is None:
                refused = Decision(Take(part, take.max_wait), False, wait_us, states, peeked.now_us)
                raise pace_timeout(take, refused)
            states = after

    def _waits_in_time(self, take: Take, decision: Decision, deadline_us: float) -> tuple[float, float]:
        """Microseconds until the own keys of a refused take would allow it, and until all of them would.

        Raises ``PaceTimeout`` if that is after the deadline.
        """
        shared, now_us = take.charges[-1].key, decision.now_us
        waits = [
            (charge.key, wait(charge.quota, state, now_us, charge.cost, math.inf))
            for charge, state in zip(take.charges, decision.stored)
        ]
        longest_us = max(wait_us for _, wait_us in waits)
        too_long_us = longest_us if longest_us == math.inf else self.now_us() + longest_us - deadline_us
        if is_outage(decision) or too_long_us > 0.0:
            raise pace_timeout(take, as_refused(decision, too_long_us))
        return max(wait_us for key, wait_us in waits if key != shared), longest_us


def own_charges(take: Take) -> tuple[Charge, ...]:
    """The charges of all keys but the last one, which is shared; none if there is only one key."""
    shared = take.charges[-1].key
    return tuple([charge for charge in take.charges if charge.key != shared])


# All callers of a store


@dataclass(slots=True)
class Waiters:
    """The callers that wait over one store: for booked slots, for their departure, in front of their keys, to spend."""

    spacing: CallSpacing
    slots: Queues = field(default_factory=Queues)
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
        counts = sum([waiters.slots.counts() for _, waiters in living(self)], Counter[str]())
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
