"""The wait of a paced caller: book a slot, sleep once, leave; and what happens if it is cancelled.

A take over several keys, the last of which is shared (10 in 10 seconds for each guild, and 50/s for all of them), is
not booked ahead: a slot booked far ahead in the own quota would keep a part of the shared quota unused until then, and
one busy key would stop all the others. One caller of an own key at a time sleeps until its own quota allows the take,
waits for its turn at the shared quota, and takes all charges at once when they fit, or nearly so.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from threading import RLock
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..algorithms import FITS_US
from ..algorithms.take import ALGORITHMS, in_use, unused, wait
from ..background import reset_now_and_in_child
from ..buckets import DEFAULT_NAME
from ..clock import SystemClock, time_of
from ..decision import Charge, Decision, Take, is_outage
from ..errors import RateLimitError, StoreError
from ..quota_text import readable
from ..quotas import SECOND_US, FixedWindow, InFlight, Quota, TokenBucket
from ..stores import ByStore, CameBack, Decisions, Store, settle_all, undoing, when_units_come_back
from .drivers import CallStore, Finish, Flow, GiveBack, SendTake, sleep
from .queues import FIRST, LATE_US, ConcurrencyLimit, Queues, ReturningUnits, Slot, Waiter, key_of, slot_of

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


def pace_timeout(take: Take, decision: Decision) -> PaceTimeout:
    """The error for a caller with this take; the decision says by how much its ``max_wait`` is too short."""
    charge = take.charges[0]
    name = charge.name or DEFAULT_NAME
    paced = f"{name!r} for {charge.key!r}" if charge.key else repr(name)
    if is_outage(decision):
        return PaceTimeout(f"no slot of {paced}: the store is out, and its on_error refuses", decision)
    if isinstance(decision.quota, InFlight):
        held = f"no place of {paced} within {take.max_wait:g} s, as all {decision.quota.limit} are held"
        return PaceTimeout(held + (OUT if decision.degraded else ""), decision)
    if decision.retry_after == math.inf:
        ever = f"no slot of {paced}, ever: the cost is above what {readable(decision.quota)} can give"
        return PaceTimeout(ever, decision)
    away = take.max_wait + decision.retry_after
    text = f"the next slot of {paced} is {away:.6g} s away, max_delay is {take.max_wait:g} s"
    return PaceTimeout(text + (OUT if decision.degraded else ""), decision)


def too_late(take: Take, decision: Decision, too_long_us: float) -> PaceTimeout:
    """The error for a caller that would have to wait ``too_long_us`` microseconds longer than its take says."""
    refused = decision.take if decision.take.max_wait < math.inf else replace(decision.take, max_wait=0.0)
    wait_us = refused.max_wait_us + max(too_long_us, 0.0)
    return pace_timeout(take, replace(decision, take=refused, allowed=False, wait_us=wait_us, id=0))


# How much later than its slot a caller may leave although its longest wait is over.
GRACE_US = 10_000.0

# How far ahead a take over several keys is booked, for a sleep and a call to the store that take longer than foreseen.
# What another process takes from the own quota in that time may keep the shared one unused for this long.
NEARLY_US = 20_000.0

# The shortest sleep before another look at a store that does not book ahead, as a cluster with keys on many nodes.
SHORTEST_US = 1_000.0


# The most buckets whose departures are remembered; the least recently used one is forgotten first.
MOST_BUCKETS = 10_000

# A call may leave as if this time had already passed: late by a millisecond is on time, and delays nobody. Timers of
# event loops, which round up to whole milliseconds, are no more exact than that: each call would be late, and the rate
# would drop. So an interval may have more calls, by as many as the quota admits in that time: a service that allows
# for two milliseconds has one left for the way. The slots of the store keep their distances.
TOGETHER_US = 1_000.0

# The quotas and the state of a bucket on which no call has left.
NEVER_LEFT = None, None, None

# The least and the most time that the first call of a burst has to arrive, as its connection may have to be opened.
# The burst is smaller by what is due in a fortieth of its own time, within these bounds. That delays the last of its
# calls and those behind it once, and does not lower the rate. In a rolling window, each call has half a part. Evenly
# spaced calls have no such time.
ON_THE_WAY_US = 5_000.0, 50_000.0


# The longest wait of a take here: with any wait, a cost above the burst fits into an unused bucket. A call that may not
# leave yet waits at least as long.
AT_ONCE_US = 1.0


# The decision of a caller whose slot has come, or its refusal; and whether its call has left.
_Departure: TypeAlias = tuple[Decision, bool]


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread.

    ``margin`` is the part by which the limits of its takes are lower than the rate at which calls may leave.
    ``renewed`` returns a take under the quotas that now apply, for callers that have waited and booked nothing.
    """

    # Whether calls leave when their slots have come; else callers let them ``depart`` themselves, or pass the slot on.
    departs = True

    def __init__(
        self, store: Store, *, margin: float = 0.0, renewed: Callable[[Take], Take] = lambda take: take
    ) -> None:
        self.store = store
        self.now_us = time_of(store.clock)
        self.clock = None if isinstance(store.clock, SystemClock) else store.clock
        self._waiters = waiters_of(store)
        self._queues, self._turns, self.units = self._waiters.slots, self._waiters.turns, self._waiters.units
        self._margin, self._renewed = margin, renewed

    def wait(self, take: Take, priority: float = 0.0, deadline_us: float | None = None) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until the call may leave; return the decision whose slot is used.

        Callers of equal takes go in the order in which they came, but those with a higher ``priority`` go first. If
        there are several keys, the last one is shared, and its callers take turns by their other keys. A take under an
        operation keeps its slot, whatever becomes of its caller: the next caller of the operation gets it. Raises
        ``PaceTimeout`` if the slot is further away than the take's ``max_wait``; then nothing is booked. The deadline
        is that of a caller that has already spent a part of its longest wait.
        """
        now_us, charges = self.now_us(), take.charges
        booked = take if deadline_us is None else replace(take, max_wait=max(deadline_us - now_us, 0.0) / SECOND_US)
        deadline_us = now_us + take.max_wait_us if deadline_us is None else deadline_us
        if not booked.max_wait_us and any(charge.cost > charge.quota.most for charge in charges):
            booked = replace(booked, max_wait=1.0 / SECOND_US)  # only who may wait gets it, even from a full bucket
        several = len(charges) > 1 and any(charge.key != charges[-1].key for charge in charges)
        if take.operation is not None and (not several or (yield from self.peeked(take)).repeated):
            decision, has_left = (yield from self._book_operation(booked, deadline_us)), False
        elif several:
            decision, has_left = yield from self._wait_with_own_keys(take, priority, deadline_us)
        else:
            decision, has_left = yield from self._book_and_sleep(take, booked, priority, deadline_us)
        if not decision.allowed:
            raise pace_timeout(take, decision)
        # A call whose operation another one has booked does not count
        return decision if has_left or decision.repeated else (yield from self.departed(decision))

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        step = SendTake(self.store, take)
        try:
            return (yield step)  # type: ignore[no-any-return]  # a step has any result
        except GeneratorExit:
            raise
        except BaseException:
            yield GiveBack(self.store, step.undo)
            raise

    def departed(self, decision: Decision) -> Flow[Decision]:
        """The decision when its call may leave; it then leaves, or passes its slot on."""
        if self.departs:
            try:
                yield from self.depart(decision)
            except GeneratorExit:
                raise
            except BaseException:
                yield from self.pass_on(decision)
                raise
        return decision

    def depart(self, decision: Decision, *only: Charge) -> Flow[None]:
        """Wait until a call whose slot has come may leave, behind earlier ones of its first bucket; it then leaves.

        It keeps its distance in all of its buckets, or ``only`` in those of some charges; in none if an outage lets it
        pass, which its decision shows by having no id.
        """
        charges = only or decision.take.charges
        turn, depart = ("departure", charges[0].bucket), self._waiters.spacing.depart
        if not decision.id or not (turn in self._turns or depart(charges, self.now_us(), self._margin)[0]):
            return
        place = yield from self._turns.wait_and_enter(turn, self.clock, math.inf)
        try:
            while wait_us := depart(charges, self.now_us(), self._margin)[0]:
                yield from sleep(self.clock, wait_us)
        finally:
            self._turns.leave(cast("Waiter", place))  # there is no deadline

    def pass_on(self, decision: Decision, *, has_departed: bool = False) -> Flow[None]:
        """Let the next caller that waits for an equal take go now, at a slot that was not used."""
        if has_departed:
            self._waiters.units_came_back([(charge, charge.cost) for charge in decision.take.charges])
        if decision.take.operation is None:
            now_us = self.now_us()
            self._queues.add(key_of(decision.take), Slot(FIRST, now_us, math.inf, LATE_US, decision))
        yield from self._give_back()

    # In a queue

    def _book_and_sleep(self, take: Take, booked: Take, priority: float, deadline_us: float) -> Flow[_Departure]:
        """Book a slot as ``booked``, with what is left of the longest wait of a take, and wait until it has come.

        A store in memory answers before anybody else can come: its slot joins the queue together with the caller, or is
        used at once where nobody waits. For any other, the caller joins first, which keeps its place, and ``_booked``
        adds the slot when the answer is there. From then on, the queue says which slot the caller gets. A slot is
        missed if the first waiter wakes too late for it: then this one books anew. Missed slots, and those of which
        there are more than waiters, are unused: they go back to the store.
        """
        decision: Any = None
        key, slot, until_us = key_of(take), None, math.inf
        # One with a priority joins first, too: what it books is not for it, but for those that it overtakes
        if self.store.in_process and not priority:
            answer = self.store.take((booked,))
            (decision,) = answer if type(answer) is Decisions else (yield CallStore(self.store, answer))
            if not decision.allowed or (decision.wait_us <= 0.0 and key not in self._queues):
                return decision, False
            now_us = self.now_us()
            slot = slot_of(decision, now_us, now_us)
            until_us = max(deadline_us, slot.at_us + GRACE_US)
        waiter = self._queues.join(key, self.clock, priority, until_us, slot)
        try:
            if slot is None:  # the slot at the end of the queue is not for one that overtakes others
                overtakes = priority and waiter.queue.waiters[-1] is not waiter
                booked = replace(take, max_wait=math.inf) if overtakes else booked
                decision = yield Finish(self.store, partial(self._booked, waiter, booked))
                # What others have not overtaken is near enough, however late the store has answered.
                waiter.deadline_us = max(deadline_us, 0.0 if overtakes else self.now_us() + decision.wait_us + GRACE_US)
                waiter.set(waiter.at_us)
            while decision.allowed:
                now_us = yield waiter
                slot = self._queues.slot_for(waiter, now_us, self._leave)
                if slot is not None:
                    return slot.decision, waiter.has_left
                yield from self._give_back()
                if self._queues.books_anew(waiter):
                    decision = yield Finish(self.store, partial(self._booked, waiter, replace(take, max_wait=math.inf)))
                elif now_us >= waiter.deadline_us:
                    last_us = max([slot.at_us for slot in waiter.queue.slots], default=now_us)
                    raise too_late(take, replace(decision, take=replace(take, max_wait=0.0)), last_us - now_us)
        except BaseException as error:
            self._queues.give_up(waiter)
            if not isinstance(error, GeneratorExit):
                yield from self._give_back()
            raise
        self._queues.give_up(waiter)
        return decision, False

    def _leave(self, waiter: Waiter, decision: Decision, now_us: float) -> float:
        """Let a call leave at its slot, unless others still have to; about when the next one of its queue may."""
        charges = decision.take.charges
        if not (self.departs and decision.id) or (self._turns and ("departure", charges[0].bucket) in self._turns):
            return now_us
        wait_us, ready_us = self._waiters.spacing.depart(charges, now_us, self._margin)
        waiter.has_left = not wait_us
        return ready_us

    async def _booked(self, waiter: Waiter, take: Take) -> Decision:
        """Book a slot, which goes to the queue even if the caller that has sent the take is gone."""
        sent_us, slot = self.now_us(), None
        try:
            (decision,) = await self.store.take((take,))
            if decision.allowed:
                slot = slot_of(decision, sent_us, self.now_us())
        finally:
            self._queues.add(waiter.queue.key, slot, waiter)
        if self._queues.unused:
            with contextlib.suppress(StoreError):
                await self._return()
        return decision

    def _book_operation(self, take: Take, deadline_us: float) -> Flow[Decision]:
        """As ``_book_and_sleep``, for a slot that belongs to an operation, and not to its callers."""
        decision = yield from self.try_take(take)
        if decision.allowed:
            passed_us = decision.asked_us - decision.now_us if decision.repeated else 0.0
            slot_us = self.now_us() + decision.wait_us - passed_us
            if decision.repeated and slot_us > deadline_us:
                raise too_late(take, decision, slot_us - deadline_us)
            yield from sleep(self.clock, slot_us - self.now_us())
        return decision

    def _give_back(self) -> Flow[None]:
        if self._queues.unused:
            yield GiveBack(self.store, self._return)

    async def _return(self) -> None:
        """Give the slots back that are not used, all that there are by now together."""
        slots = self._queues.take_unused()
        try:
            undone = chain.from_iterable([undoing(slot.decision) for slot in slots])
            await settle_all(self.store, list(undone), is_unused=True)
        except asyncio.CancelledError:
            self._queues.unused += slots
            raise

    # In front of own keys

    def _wait_with_own_keys(self, take: Take, priority: float, deadline_us: float) -> Flow[_Departure]:
        """``wait`` for several keys: a caller takes a turn at the shared one only when its own ones have room."""
        shared = take.charges[-1]
        key = ("own", *[charge.bucket for charge in take.charges if charge.key != shared.key])
        turn = ("shared", shared.bucket)
        if deadline_us < math.inf:
            yield from self._require_near(take, deadline_us, 0 if priority > 0.0 else self._turns.ahead(key), turn)
        places = [(yield from self._enter(key, take, deadline_us, priority))]
        try:
            while True:
                if len(places) == 1 and self._turns.ahead(turn):
                    places.append((yield from self._enter(turn, take, deadline_us)))
                take = self._renewed(take)
                booked = replace(take, max_wait=NEARLY_US / SECOND_US)
                decision, has_left = yield from self._book_and_sleep(take, booked, 0.0, deadline_us)
                if decision.allowed:
                    return decision, has_left
                own_us, wait_us = self._waits_in_time(take, decision, deadline_us)
                wait_us = own_us if own_us > NEARLY_US else wait_us
                wakes_us = self.now_us() + (wait_us - NEARLY_US if wait_us > NEARLY_US else max(wait_us, SHORTEST_US))
                if own_us > NEARLY_US and len(places) > 1:
                    self._turns.leave(places.pop())
                elif own_us <= NEARLY_US and len(places) == 1:
                    places.append((yield from self._enter(turn, take, deadline_us)))
                yield from sleep(self.clock, wakes_us - self.now_us())
        finally:
            for place in places:
                self._turns.leave(place)

    def _enter(self, turn: tuple[str, ...], take: Take, deadline_us: float, priority: float = 0.0) -> Flow[Waiter]:
        """Wait until no other caller has this turn. Raises ``PaceTimeout`` if the deadline comes first."""
        place = yield from self._turns.wait_and_enter(turn, self.clock, deadline_us, priority)
        if place is None:
            peeked = yield from self.peeked(take)
            raise too_late(take, peeked, peeked.wait_us)
        return place

    def peeked(self, take: Take) -> Flow[Decision]:
        """What a take would get now; while the store is out, what it would get of buckets that were never used."""
        now = self.now_us()
        peeked = Decision(take, True, 0.0, [unused(charge.quota, now) for charge in take.charges], now)
        with contextlib.suppress(StoreError):
            peeked = yield CallStore(self.store, self.store.peek(take))
        return peeked

    def _require_near(self, take: Take, deadline_us: float, ahead: int, turn: tuple[str, ...]) -> Flow[None]:
        """Raise ``PaceTimeout`` if a key cannot allow a take in time, after the callers ahead of this one."""
        try:
            peeked: Decision = yield CallStore(self.store, self.store.peek(take))
        except StoreError:  # what decides in an outage says it
            return
        left_us, at_turn = max(deadline_us - self.now_us(), 0.0), self._turns.ahead(turn)
        for charge, state in zip(take.charges, peeked.stored):
            quota, before = charge.quota, at_turn if charge.key == take.charges[-1].key else ahead
            # Those before it may have asked for less
            units = in_use(quota, state, peeked.now_us) + charge.cost + before * min(charge.cost, 1.0) - quota.most
            least_us = (units if isinstance(quota, TokenBucket) else units - quota.most) * quota.period_us / quota.limit
            wait_us = max(wait(quota, state, peeked.now_us, charge.cost, math.inf), least_us)
            if wait_us > left_us:
                raise too_late(take, peeked, wait_us - left_us)

    def _waits_in_time(self, take: Take, decision: Decision, deadline_us: float) -> tuple[float, float]:
        """Microseconds until the own keys of a refused take would allow it, and until all of them would.

        Raises ``PaceTimeout`` if that is after the deadline.
        """
        waits = [
            (charge.key, wait(charge.quota, state, decision.now_us, charge.cost, math.inf))
            for charge, state in zip(take.charges, decision.stored)
        ]
        longest_us = max(wait_us for _, wait_us in waits)
        too_long_us = longest_us if longest_us == math.inf else self.now_us() + longest_us - deadline_us
        if is_outage(decision) or too_long_us > 0.0:
            raise too_late(take, decision, too_long_us)
        return max(wait_us for key, wait_us in waits if key != take.charges[-1].key), longest_us


# What leaves


class CallSpacing:
    """The state of each bucket, according to the calls of this process that have left. Thread-safe.

    A store spaces slots, not calls: a caller that wakes late would leave just ahead of the punctual one behind it. So
    each call is taken a second time when it leaves, from a state that only this process uses.

    A fixed window does not need this: booked slots are used within the window, or missed. Rolling windows are counted
    in the parts of the store's time, which is about that of this machine. ``is_real`` says that it is real, so that
    calls need time on their way.
    """

    def __init__(self, *, is_real: bool = False) -> None:
        self._is_real = is_real
        reset_now_and_in_child(self)

    def reset(self) -> None:
        """Forget all calls."""
        self._lock = RLock()  # as that of the queues
        # For each bucket, the quota of its last charge, that by which its calls leave, and the state under it: of a
        # token bucket, whose rate and burst alone count here, when it is empty again.
        self._rows: OrderedDict[str, tuple[Any, Any, Any]] = OrderedDict()

    def give_back(self, bucket: str, units: float) -> None:
        """Uncount ``units`` that have left on a bucket; those of a rolling window then all count anew."""
        with self._lock:
            own, quota, state = self._rows.pop(bucket, NEVER_LEFT)
            if type(own) is TokenBucket and state is not None:
                self._rows[bucket] = own, quota, state - units / quota.rate

    def depart(self, charges: Sequence[Charge], now_us: float, margin: float = 0.0) -> tuple[float, float]:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may.

        And about when the next call with these charges may leave. ``margin`` is the unused part of the limits of token
        buckets, which serves to catch up, so that a late call delays those behind it only for a while.
        """
        rows, before, ready_us = self._rows, {}, now_us
        with self._lock:
            for charge in charges:
                own, cost, bucket = charge.quota, charge.cost, charge.bucket
                kind: Any = type(own)
                if kind is FixedWindow or not cost:  # a condition costs nothing
                    continue
                last, quota, state = rows.get(bucket, NEVER_LEFT)
                if last is not own:
                    former, quota = quota, _metered(own, margin, self._is_real)
                    if former != quota and kind is not TokenBucket:
                        state = None
                    elif former != quota and state is not None:
                        # Another margin, or a changed limit: what is used stays used, up to the burst
                        state = now_us + min((state - now_us) * former.rate, quota.burst) / quota.rate
                before[bucket] = own, quota, state
                if kind is TokenBucket:
                    room_us = (quota.burst - cost) / quota.rate if cost < quota.burst else 0.0
                    empty_us = now_us if state is None or state < now_us else state
                    wait_us, after = empty_us - now_us - room_us, empty_us + cost / quota.rate
                    ready_us = max(ready_us, after - room_us)
                else:
                    at_us = SystemClock().now_us() + quota.part_us // 2.0 if self._is_real else now_us
                    state = state if state is not None and state.at <= at_us else unused(own, at_us)
                    after, wait_us = ALGORITHMS[kind].take(quota, state, at_us, cost, AT_ONCE_US, 0.0)
                if wait_us > FITS_US:
                    rows.update(before)
                    return max(wait_us, AT_ONCE_US), now_us + wait_us
                rows[bucket] = own, quota, after
                rows.move_to_end(bucket)
            while len(rows) > MOST_BUCKETS:
                rows.popitem(last=False)
        return 0.0, ready_us


@lru_cache(maxsize=1000)
def _metered(quota: Quota, margin: float, is_real: bool) -> Any:
    """The quota by which calls leave: without the margin, and in real time with a burst that allows for delays.

    A small burst is what is due while a call is on time. A large one leaves the first call time on its way.
    """
    if not isinstance(quota, TokenBucket):
        return quota
    if margin:
        quota = replace(quota, limit=quota.limit / (1.0 - margin))
    if not is_real:
        return quota
    due, spare, on_the_way_us = quota.rate * TOGETHER_US, quota.burst - 1.0, 0.0
    if spare >= 2.0 * due:
        least_us, most_us = ON_THE_WAY_US
        on_the_way_us = min(max(spare / quota.rate / 40.0, least_us), most_us)
    return replace(quota, burst=max(quota.burst - quota.rate * on_the_way_us, 1.0 + due))


# All callers of a store


# What has outbound queues or has learned limits: objects with ``outbound_rows()``, while they live.
outbound_sources: WeakKeyDictionary[Any, None] = WeakKeyDictionary()


# When calls left, by the server, its prefix and its clock, for as long as a store lives.
_spacings: WeakValueDictionary[tuple[str, int], CallSpacing] = WeakValueDictionary()


class Waiters:
    """The callers that wait over one store: for booked slots, for their turns, and for units that come back."""

    def __init__(self, store: Store) -> None:
        spacing = CallSpacing(is_real=store.clock is None or isinstance(store.clock, SystemClock))
        # Each use of one URL may have made a store of its own, whose buckets are the same
        self.spacing = spacing if store.in_process else _spacings.setdefault((repr(store), id(store.clock)), spacing)
        self.slots = Queues()
        # To depart, at own and shared keys, and to spend: the first caller is about to go, the others wait for it.
        self.turns = ConcurrencyLimit(1)
        self.units = ReturningUnits()
        when_units_come_back(store, self.units_came_back)
        outbound_sources[self.slots] = None

    def units_came_back(self, came_back: CameBack) -> None:
        """Uncount the units that came back to buckets, and wake the callers that wait for them."""
        for charge, units in [each for each in came_back if each[1]]:  # an unused slot has let nobody leave
            self.spacing.give_back(charge.bucket, units)
        self.units.wake([charge for charge, _ in came_back])


# The waiters of a store.
waiters_of: ByStore[Waiters] = ByStore(Waiters)
