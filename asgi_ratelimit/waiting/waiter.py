"""The wait of a paced caller: book a slot, sleep once, leave; and what happens if it is cancelled.

A take over several keys, the last of which is shared (10 in 10 seconds for each guild, and 50/s for all of them) waits
in front of its own keys first, without booking: a slot booked far ahead in the own quota would keep a part of the
shared quota unused until then, and one busy key would stop all the others. One caller of an own key at a time finds
out when its own quota allows the take, sleeps until then, and books all charges at once. Only the short wait for the
shared quota is booked ahead. On a cluster, where a store refuses to book over several slots of the cluster, not even
that is booked: then the callers of the shared key go one at a time, and each sleeps until the store grants its take.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from ..algorithms import decide, wait
from ..buckets import DEFAULT_NAME
from ..clock import SystemClock, time_of
from ..decision import Charge, Decision, Take, is_outage, settlements_of
from ..errors import RateLimitError, StoreError
from ..quota_text import readable
from ..quotas import SECOND_US
from ..stores import Store, settle_all
from .concurrency import ConcurrencyLimit, Place
from .drivers import Book, CallStore, Flow, GiveBack, NewWakeUp, Sleep, run_in_place, sleep, take_all
from .queues import LATE_US, Slot, Waiter, slot_of, waiters_of

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
"""How long after its deadline a caller may still go at a slot that came in time, if others overtake it."""

SLACK_US = 50_000.0
"""How much further ahead than foreseen the shared quota may be booked, because others book between query and take.

What another process takes from the own quota in that time may keep the shared one unused for this long.
"""

AHEAD_US = 10_000.0
"""How long before its slot a caller lets the next one of its own keys book; until then, other keys book in turn."""

SHORTEST_SLEEP_US = 1_000.0
"""The shortest sleep before another look at a store that does not book ahead."""


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
        self._ahead_us = 0.0
        """The time of the store minus that of the local clock, as of its last answer."""

    def wait(self, take: Take, priority: float = 0.0) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until the call may leave; return the decision whose slot is used.

        Callers of equal takes go in the order in which they came, but those with a higher ``priority`` go first. If
        there are several keys, the last one is shared, and its callers take turns by their other keys. Raises
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
        deadline_us, own = self.now_us() + take.max_wait_us, own_part(take)
        if own is not None:
            return (yield from self._wait_with_own_keys(take, own, priority, deadline_us))
        decision = yield from self._book_and_sleep(take, take.max_wait, priority, deadline_us)
        if not decision.allowed:
            raise pace_timeout(take, decision)
        return decision

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        (decision,) = yield Book(self.store, (take,), self._pass_on_or_return)
        self._note_time(decision)
        return decision  # type: ignore[no-any-return]  # a step has any result

    def depart(self, decision: Decision) -> Flow[None]:
        """Wait until a call whose slot has come may leave, behind the earlier ones of its first bucket; it then leaves.

        A call under an operation that another one has booked leaves with that one.
        """
        charges, departing = decision.take.charges, self._waiters.departing
        if not departing and (decision.repeated or (yield from self._try_to_depart(charges)) is True):
            return
        place = yield from departing.wait_and_enter(charges[0].bucket, self.clock, math.inf)
        assert place is not None  # it has no deadline
        try:
            if not decision.repeated:
                buckets = [charge.bucket for charge in charges]
                yield from self._waiters.units.retry(buckets, self.clock, partial(self._try_to_depart, charges))
        finally:
            departing.leave(place)

    def _try_to_depart(self, charges: Sequence[Charge]) -> Flow[bool | float]:
        """Let a call leave, and return true; or return the time at which it may."""
        yield from ()
        wait_us = self._departure_us(charges)
        return self.now_us() + wait_us if wait_us else True

    def _departure_us(self, charges: Sequence[Charge], *, leaves: bool = True) -> float:
        """As ``CallSpacing.depart``."""
        spacing = self._waiters.spacing
        return spacing.depart(charges, self.now_us(), self._ahead_us, self._margin, leaves=leaves)

    def pass_on(self, decision: Decision, *, has_departed: bool = False) -> Flow[None]:
        """Let the next caller that waits for an equal take go now, at a slot that was not used."""
        if has_departed:
            self._waiters.units_came_back([(charge, charge.cost) for charge in decision.take.charges])
        yield GiveBack(self.store, partial(self._pass_on_or_return, (decision,)))

    # In a queue

    def _book_and_sleep(
        self, take: Take, max_wait: float, priority: float, deadline_us: float, place: Place | None = None
    ) -> Flow[Decision]:
        """Book a slot at most ``max_wait`` seconds ahead, and wait until it has come: its decision, or the refusal.

        ``place`` is left shortly before, so that the next caller of the own keys can book.
        """
        decision: Decision | None = None
        if self.store.in_process and not self._queues.has_waiters(take):  # there is nobody to overtake
            sent = take if max_wait == take.max_wait else replace(take, max_wait=max_wait)
            (decision,) = run_in_place(take_all(self.store, sent))
            self._note_time(decision)
            if not decision.allowed or (not decision.wait_us and self._queues.try_use(decision)):
                return decision
        waiter = self._queues.join(take, priority)
        try:
            if priority and self._queues.has_followers(waiter):  # the slot at the end of the queue is not for this one
                max_wait = math.inf
            is_near = max_wait == take.max_wait
            if decision is None:
                decision = yield from self._book(waiter, take if is_near else replace(take, max_wait=max_wait))
            else:
                self._booked(waiter, self.now_us(), 1, (decision,))
            if decision.allowed:
                if deadline_us < math.inf:
                    if is_near and not decision.repeated:  # so the store has found, however late it has answered
                        deadline_us = max(deadline_us, self.now_us() + decision.wait_us)
                    self._require_near_place(waiter, decision, deadline_us)
                if place is not None:
                    if decision.wait_us > AHEAD_US:
                        yield from sleep(self.clock, decision.wait_us - AHEAD_US)
                    self._waiters.own_keys.leave(place)
                return (yield from self._sleep(waiter, decision))
        except GeneratorExit:  # the task is closed, so nothing more can be awaited
            self._queues.give_up(waiter, is_closed=True)
            if self.store.in_process:
                run_in_place(self._return())
            raise
        except BaseException:
            self._queues.give_up(waiter)
            yield from self._give_back()
            raise
        self._queues.give_up(waiter)
        yield from self._give_back()
        return decision

    def _require_near_place(self, waiter: Waiter, decision: Decision, deadline_us: float) -> None:
        """Set the deadline of a waiter. Raises ``PaceTimeout`` if the slot at its place comes later."""
        waiter.deadline_us = waiter.wakes_us = deadline_us
        overdue_us = self._queues.overdue_us(waiter)
        if overdue_us > 0.0:
            raise pace_timeout(waiter.take, as_refused(decision, overdue_us))

    def _sleep(self, waiter: Waiter, decision: Decision) -> Flow[Decision]:
        """Sleep until the slot at a waiter's place has come, and return its decision."""
        while True:
            now_us = self.now_us()
            held_us = self._departure_us(waiter.take.charges, leaves=False) if self._waiters.departing else 0.0
            slot = self._queues.leave(waiter, now_us, held_us)
            if slot is not None:
                return slot.decision
            yield from self._give_back()
            lacking = self._queues.lacking(waiter)
            if lacking:
                anew = replace(waiter.take, max_wait=math.inf, operation=None)
                decision = yield from self._book(waiter, *[anew] * lacking)
                if not decision.allowed:
                    raise pace_timeout(anew, decision)
            elif now_us >= waiter.wakes_us:
                self._require_in_time(waiter, decision, now_us)
            elif waiter.wake_up is None:
                waiter.wake_up = yield NewWakeUp(self.clock)
            else:
                yield Sleep(waiter.wake_up)

    def _require_in_time(self, waiter: Waiter, decision: Decision, now_us: float) -> None:
        """Raise ``PaceTimeout`` for a waiter whose deadline has come, unless the slot at its place has come in time.

        Waiters ahead may hold it up only for a moment then, because more of them may still overtake it.
        """
        overdue_us = self._queues.overdue_us(waiter)
        if overdue_us > 0.0 or waiter.wakes_us > waiter.deadline_us:
            refused = as_refused(decision, overdue_us + waiter.deadline_us - now_us)
            raise pace_timeout(replace(waiter.take, max_wait=0.0), refused, waiter.take.max_wait)
        waiter.wakes_us += GRACE_US

    def _book(self, waiter: Waiter, *takes: Take) -> Flow[Decision]:
        """Book slots for the queue of a waiter, which expects so many; return the last decision."""
        sent_us, asked = self.now_us(), len(takes)
        try:
            decisions: Sequence[Decision] = yield Book(self.store, takes, partial(self._add, waiter, sent_us, asked))
        except Exception:
            self._queues.booked(waiter, asked, ())
            raise
        self._booked(waiter, sent_us, asked, decisions)
        yield from self._give_back()
        return decisions[-1]

    def _booked(self, waiter: Waiter, sent_us: float, asked: int, decisions: Sequence[Decision]) -> None:
        """Add the slots that were booked to the queue of a waiter."""
        now_us = self.now_us()
        for decision in decisions:
            self._note_time(decision)
        slots = [slot_of(decision, sent_us, now_us) for decision in decisions if decision.allowed]
        self._queues.booked(waiter, asked, slots)

    async def _add(self, waiter: Waiter, sent_us: float, asked: int, decisions: Sequence[Decision]) -> None:
        """Add the slots that were booked for a waiter that is gone."""
        self._booked(waiter, sent_us, asked, decisions)
        self._queues.give_up(waiter)
        await self._return()

    async def _pass_on_or_return(self, decisions: Sequence[Decision]) -> None:
        now_us = self.now_us()
        for decision in decisions:
            if decision.allowed:
                self._queues.pass_on(Slot(now_us, now_us + LATE_US, decision))
        await self._return()

    def _give_back(self) -> Flow[None]:
        if self._queues.unused:
            yield GiveBack(self.store, self._return)

    async def _return(self) -> None:
        """Give unused slots back to the store, but none that another caller has booked under the same operation."""
        unused = self._queues.take_unused()
        settlements = [settlements_of(slot.decision, [0.0] * len(slot.decision.stored)) for slot in unused]
        try:
            await settle_all(self.store, list(chain.from_iterable(settlements)), is_unused=True)
        except StoreError:
            pass  # while the store is out, they stay booked: later callers wait longer
        except BaseException:
            self._queues.unused += unused
            raise

    def _note_time(self, decision: Decision) -> None:
        if not decision.repeated:  # it has only just been decided
            self._ahead_us = decision.now_us - self.now_us()

    # In front of own keys

    def _wait_with_own_keys(self, take: Take, own: Take, priority: float, deadline_us: float) -> Flow[Decision]:
        """``wait_for_slot`` for several keys."""
        own_keys, key = self._waiters.own_keys, tuple([charge.bucket for charge in own.charges])
        if take.max_wait < math.inf:
            yield from self._require_near(own, 0 if priority > 0.0 else own_keys.ahead(key))
        place = yield from self._enter(own_keys, key, take, deadline_us, priority)
        shared: Place | None = None
        ahead_us, slack_us = 0.0, SLACK_US
        try:
            while True:
                take, own = self._renewed(take), self._renewed(own)
                decision = yield from self._book_and_sleep(take, ahead_us / SECOND_US, priority, deadline_us, place)
                if decision.allowed:
                    return decision
                own_us, longest_us = self._waits_in_time(take, own, decision, deadline_us)
                if own_us > 0.0:
                    if shared is not None:
                        own_keys.leave(shared)
                        shared = None
                    yield from sleep(self.clock, own_us)
                    ahead_us = 0.0
                elif shared is None and (not ahead_us or longest_us > ahead_us):
                    ahead_us, slack_us = longest_us + slack_us, 2 * slack_us
                else:  # the store does not book ahead
                    ahead_us = 0.0
                    if shared is None:
                        key = "shared", take.charges[-1].bucket
                        if own_keys.ahead(key):
                            longest_us = 0.0
                        shared = yield from self._enter(own_keys, key, take, deadline_us)
                    if longest_us:
                        yield from sleep(self.clock, max(longest_us, SHORTEST_SLEEP_US))
        finally:
            own_keys.leave(place)
            if shared is not None:
                own_keys.leave(shared)

    def _enter(
        self, callers: ConcurrencyLimit, key: Hashable, take: Take, deadline_us: float, priority: float = 0.0
    ) -> Flow[Place]:
        """Wait until no other caller of a key is about to take. Raises ``PaceTimeout`` if the deadline comes first."""
        place = yield from callers.wait_and_enter(key, self.clock, deadline_us, priority)
        if place is None:
            peeked: Decision = yield CallStore(self.store, self.store.peek(take))
            raise pace_timeout(take, as_refused(peeked, peeked.wait_us))
        return place

    def _require_near(self, own: Take, ahead: int) -> Flow[None]:
        """Raise ``PaceTimeout`` if the own keys cannot allow the take in time, after the callers ahead of this one."""
        peeked: Decision = yield CallStore(self.store, self.store.peek(own))
        states = list(peeked.stored)
        for _ in range(ahead + 1):
            wait_us, after = decide(own.charges, states, peeked.now_us, own.max_wait_us)
            if after is None:
                raise pace_timeout(own, Decision(own, False, wait_us, states, peeked.now_us))
            states = after

    def _waits_in_time(self, take: Take, own: Take, decision: Decision, deadline_us: float) -> tuple[float, float]:
        """Microseconds until the own part of a refused take would conform, and until all of it would.

        Raises ``PaceTimeout`` if that is after the deadline.
        """
        waits = [
            wait(charge.quota, state, decision.now_us, charge.cost, math.inf)
            for charge, state in zip(decision.take.charges, decision.stored)
        ]
        longest_us = max(waits)
        too_long_us = longest_us if longest_us == math.inf else self.now_us() + longest_us - deadline_us
        if is_outage(decision) or too_long_us > 0.0:
            raise pace_timeout(take, as_refused(decision, too_long_us))
        return max([each for charge, each in zip(take.charges, waits) if charge in own.charges]), longest_us


def own_part(take: Take) -> Take | None:
    """The charges of all keys but the last one, which is shared; ``None`` if there is only one key."""
    shared = take.charges[-1].key
    own = tuple([charge for charge in take.charges if charge.key != shared])
    return Take(own, take.max_wait) if own else None
