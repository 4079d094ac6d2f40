"""The wait of a paced caller: book a slot, sleep once, leave; and what happens if it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..clock import SystemClock, time_of
from ..decision import Charge, Decision, Take
from ..quotas import SECOND_US
from ..stores import Store
from .concurrency import Place
from .flow_drivers import BookSlot, Flow, TaskOrThread, block, sleep
from .own_and_shared_keys import AHEAD_US, OwnKeyBooking, Renewed, own_part, unchanged
from .queue_registry import waiters_of
from .slots.booking import SlotBooking
from .slots.caller_queue import NewWaiter, TaskWaiter, Waiter, Waiting
from .slots.departure_order import Departures
from .slots.slot import LATE_US, Slot, lead_us
from .slots.unused_slots import UnusedSlots


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread.

    ``margin`` is the part by which the limits of its takes are lower than the rate at which calls may leave.
    ``renewed`` returns a take under the quotas that now apply, for callers that have waited and booked nothing.

    With ``departs_later``, a call over a remote store leaves only when its caller calls ``try_depart`` or
    ``depart``. In between, the caller can check for pauses in the store. With ``watch``, callers get their slots before
    these come, by the time that the store takes to answer, and wait for them themselves, after their checks.
    """

    def __init__(
        self, store: Store, *, margin: float = 0.0, departs_later: bool = False, renewed: Renewed = unchanged
    ) -> None:
        self.store = store
        clock = store.clock
        self.now_us = time_of(clock)
        self.clock = None if isinstance(clock, SystemClock) else clock
        waiters = waiters_of(store)
        self._queues = waiters.slots
        self._unused = UnusedSlots(store, waiters.slots)
        self._booking = SlotBooking(store, waiters.slots, self._unused, self.now_us)
        self._margin = margin
        self._departs_later = departs_later and not store.in_process
        self._waiting = Waiting(self.clock, self._unused.give_back_at_once, margin, self._departs_later)
        self._departures = Departures(waiters.slots, waiters.departing, waiters.settled, margin)
        self._own_keys = OwnKeyBooking(store, self.clock, waiters.own_keys, self.try_take, renewed)

    def wait(self, take: Take, priority: float = 0.0) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until its time has come; return the decision whose slot is used.

        Callers of equal takes go in the order in which they came, but those with a higher ``priority`` go first. If
        there are several keys, the last one is shared, and its callers take turns by their other keys. Raises
        ``PaceTimeout`` if the slot is further away than the take's ``max_wait``; then nothing is booked.
        """
        return (yield from self.wait_for_slot(take, priority)).decision

    def wait_for_slot(self, take: Take, priority: float = 0.0) -> Flow[Slot]:
        """Like ``wait``, but returns the slot, whose decision is made when it is read."""
        if len(take.charges) > 1 and (own := own_part(take)) is not None:
            return (yield from self._wait_with_own_keys(take, own, priority))
        slot = self._booking.slot_at_once(take, priority)
        if slot is not None and self._try_leave(take, slot):
            return slot
        waiter = yield NewWaiter(self._waiting, take, priority)
        return (yield from self._sleep(waiter, slot))

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        sent_us = self.now_us()
        decision: Decision = yield BookSlot(self.store, partial(self._booking.submit, take), self._booking.undo)
        if not decision.repeated:  # it has only just been decided
            self._booking.ahead_us = decision.now_us - self.now_us()
        if self._booking.answered is not None:
            self._booking.answered(decision, self.now_us() - sent_us)
        return decision

    def watch(self, answered: Callable[[Decision], None]) -> None:
        """Call a function with each decision of a remote store; callers get their slots before these come."""
        if self._departs_later:
            self._booking.answered = partial(self._answered, answered)

    def _answered(self, answered: Callable[[Decision], None], decision: Decision, taken_us: float) -> None:
        self.checked(taken_us)  # a check takes as long
        answered(decision)

    def checked(self, taken_us: float) -> None:
        """Note how long a remote store has taken to answer a caller's check."""
        if self._departs_later:
            self._waiting.lead_us = lead_us(self._waiting.lead_us, taken_us)

    def is_as_new_as_a_check(self, decision: Decision, at_us: float) -> bool:
        """Whether the store has decided so shortly before the slot that a check would have to be sent no later."""
        return decision.delay * SECOND_US <= self._waiting.lead_us and self.now_us() < at_us

    def try_depart(self, charges: Sequence[Charge]) -> bool:
        """Record that a call that departs later leaves now, and return true; or return false if it has to wait."""
        if not self._departs_later:
            return True
        return self._departures.try_depart(charges, self.now_us(), self._booking.ahead_us)

    def depart(self, charges: Sequence[Charge]) -> Flow[None]:
        """Wait until a call that departs later may leave, behind earlier calls of its first bucket."""
        if not self.try_depart(charges):
            yield from self._departures.wait(charges, self.clock, self._booking.ahead_us)

    def pass_on(self, decision: Decision, at_us: float = 0.0) -> Flow[None]:
        """Let the next caller that waits for an equal take go at a slot that was not used: now, or at ``at_us``."""
        now_us, take = self.now_us(), decision.take
        at_us = max(at_us, now_us)
        slot = Slot(now_us, at_us, at_us + LATE_US, decision, self._booking.ahead_us)
        if not self._departs_later:  # its departure is recorded
            self._queues.units_came_back([(charge, charge.cost) for charge in take.charges])
        surplus = self._queues.swap_for_newest(take, slot)
        if surplus is not None:
            yield self._unused.giving_back(surplus)

    def _sleep(self, waiter: Waiter, slot: Slot | None, before: Flow[None] | None = None) -> Flow[Slot]:
        """Join the queue, with a slot or before one is booked, and sleep until a waiter leaves; return its slot.

        ``before`` runs first. A caller that fails leaves the queue, and the newest slot goes back.
        """
        try:
            self._booking.join(waiter, slot)
            if before is not None:
                yield from before
            left: Slot = yield TaskOrThread(
                partial(self._sleep_in_task, waiter), partial(self._sleep_in_thread, waiter)
            )
        except GeneratorExit:  # the task is closed, so nothing more can be awaited
            surplus = self._queues.give_up(waiter)
            if surplus is not None:
                self._unused.give_back_at_once(surplus)
            raise
        except BaseException as error:
            surplus = self._queues.give_up(waiter)
            if surplus is not None:
                yield self._unused.giving_back(surplus)
            if isinstance(waiter, TaskWaiter) and waiter.under_way and isinstance(error, asyncio.CancelledError):
                yield TaskOrThread(partial(self._booking.see_through, waiter), lambda: None)
            raise
        return left

    async def _sleep_in_task(self, waiter: Any) -> Slot:
        while True:
            slot = self._queues.take_slot(waiter, await waiter.sleep())
            if slot is not None:
                if waiter.has_left:
                    return slot
                self._booking.book_anew(waiter, slot)
                await asyncio.sleep(0)  # many may have missed their slots together

    def _sleep_in_thread(self, waiter: Any) -> Slot:
        while True:
            block(waiter)
            slot = self._queues.take_slot(waiter, self.now_us())
            if slot is not None:
                if waiter.has_left:
                    return slot
                self._booking.book_anew(waiter, slot)

    def _wait_with_own_keys(self, take: Take, own: Take, priority: float) -> Flow[Slot]:
        """``wait`` for several keys. The own ones are held until shortly before the slot, so that they take turns."""
        came_us = self.now_us()
        decision, place = yield from self._own_keys.book(take, own, priority)
        slot = self._booking.slot_of(take, decision)
        if decision.take.charges != take.charges:  # a limit has changed meanwhile
            take = replace(take, charges=decision.take.charges)
        if self._try_leave(take, slot):
            self._own_keys.leave(place)
            return slot
        waiter = yield NewWaiter(self._waiting, take, priority)
        waiter.waited_us = self.now_us() - came_us
        return (yield from self._sleep(waiter, slot, self._hold(place, slot)))

    def _hold(self, place: Place, slot: Slot) -> Flow[None]:
        """Keep the next caller of the own keys from booking until shortly before a slot."""
        try:
            ahead_us = max(AHEAD_US, self._waiting.lead_us)
            yield from sleep(self.clock, slot.at_us - slot.since_us - ahead_us)
        finally:
            self._own_keys.leave(place)

    def _try_leave(self, take: Take, slot: Slot) -> bool:
        """Record that a caller leaves at once, and return true; or return false if it has to wait."""
        now_us = slot.since_us
        if slot.at_us > now_us or (self._queues and self._queues.has_waiters(take)):
            return False
        self._booking.ahead_us = slot.ahead_us
        if take.operation is not None and slot.repeats:
            return self._queues.try_use(slot)
        return self._departs_later or self._queues.depart(take.charges, now_us, slot.ahead_us, self._margin) == 0.0
