"""What a paced caller does: book a slot, sleep once, go; and what happens if it is cancelled, or wakes too late."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..clock import Clock, SystemClock, time_of
from ..decision import Charge, Decision, Take
from ..quotas import SECOND_US
from ..stores import Store, booker, submitter
from . import background_loop
from .drivers import (
    BookSlot,
    Flow,
    TaskOrThread,
    block,
    keep,
    no_event_loop,
    run_async,
    sleep,
    start,
)
from .own_keys import AHEAD_US, OwnKeyBooking, own_part
from .registry import waiters_of
from .slots.giving_back import UnusedSlots
from .slots.late_departures import LateDepartures
from .slots.slot import LATE_US, Slot, slot_of, slot_of_booking
from .slots.waiters import NewWaiter, TaskWaiter, ThreadWaiter, Waiter, Waiting, fail
from .timeouts import as_refused, pace_timeout


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread.

    ``margin`` is the part that the limits of its takes are lower by than what may leave.

    With ``departs_later``, a call over a store elsewhere leaves only at ``departs_at_once`` or ``depart``, which its
    caller has to call: so the store can be asked in between.
    """

    def __init__(self, store: Store, *, margin: float = 0.0, departs_later: bool = False) -> None:
        self.store = store
        clock: Clock | None = getattr(store, "clock", None)
        self.now_us = time_of(clock)
        self.clock = None if isinstance(clock, SystemClock) else clock
        waiters = waiters_of(store)
        self._queues, self.crowds = waiters.slots, waiters.crowds
        self._submit, self._book = submitter(store), booker(store)
        self._in_process = store.in_process
        self._unused = UnusedSlots(store, waiters.crowds)
        self._margin = margin
        self._departs_later = departs_later and not store.in_process
        self._waiting = Waiting(self.clock, waiters.slots.decide, margin, self._departs_later)
        self._late = LateDepartures(waiters.slots, waiters.departing, waiters.settled, margin)
        self._ahead_us = 0.0  # the time of the store less that of the local clock, as of its last answer
        self._own_keys = OwnKeyBooking(store, self.clock, waiters.own_keys, self.try_take)

    def wait(self, take: Take, priority: float = 0.0) -> Flow[Decision]:
        """Book a slot for ``take``, and wait until its time has come; returns the decision whose slot is used.

        Callers of equal takes go in the order in which they came, those of a higher ``priority`` first. If there are
        several keys, the last one is shared, and its callers take turns by their other keys. Raises ``PaceTimeout`` if
        the slot is further away than the take's ``max_wait``; then nothing is booked.
        """
        own = own_part(take)
        if own is not None:
            slot: Slot = yield from self._wait_with_own_keys(take, own, priority)
            return slot.decision
        decision: Decision = yield TaskOrThread(
            partial(self.acquire, take, priority), partial(self.acquire_in_thread, take, priority)
        )
        return decision

    async def acquire(self, take: Take, priority: float = 0.0) -> Decision:
        """``wait`` for code with ``async``, without a flow. Raises ``ConfigurationError`` without asyncio."""
        return (await self.acquire_slot(take, priority)).decision

    async def acquire_slot(self, take: Take, priority: float = 0.0) -> Slot:
        """As ``acquire``: returns the slot, whose decision is made when it is read."""
        turn = self.crowds.turn()
        if turn is not None:
            try:
                await turn
            finally:
                self.crowds.pass_turn()
        slot = self.start(take, priority)
        return slot if isinstance(slot, Slot) else await slot

    def start(self, take: Take, priority: float = 0.0) -> Slot | Coroutine[Any, Any, Slot]:
        """As ``acquire``, in the caller's turn: returns the slot of a call that leaves at once, or what to await."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise no_event_loop() from None
        if len(take.charges) > 1 and (own := own_part(take)) is not None:
            return run_async(self._wait_with_own_keys(take, own, priority))
        slot = self._slot_at_once(take, priority)
        if slot is not None and self._leaves_at_once(take, slot):
            return slot
        waiter = TaskWaiter(self._waiting, take, priority)
        return self.sleep_in_task(waiter, slot)

    def acquire_in_thread(self, take: Take, priority: float = 0.0) -> Decision:
        """``wait`` for code without ``async``, for charges of one key."""
        return self.acquire_slot_in_thread(take, priority).decision

    def acquire_slot_in_thread(self, take: Take, priority: float = 0.0) -> Slot:
        """As ``acquire_in_thread``: returns the slot, whose decision is made when it is read."""
        slot = self._slot_at_once(take, priority)
        if slot is not None and self._leaves_at_once(take, slot):
            return slot
        waiter = ThreadWaiter(self._waiting, take, priority)
        try:
            self._join(waiter, slot)
            return self.sleep_in_thread(waiter)
        except BaseException:
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                self._unused.giving_back(surplus).in_thread()
            raise

    def try_take(self, take: Take) -> Flow[Decision]:
        """Send a take to the store once; if the caller is cancelled meanwhile, what it has booked is given back."""
        decisions: list[Decision] = yield BookSlot(self.store, self.store.take((take,)), self._undo)
        self._ahead_us = decisions[0].now_us - self.now_us()
        return decisions[0]

    def departs_at_once(self, charges: Sequence[Charge]) -> bool:
        """Whether a call that departs later leaves now, behind nobody; if so, that is recorded."""
        return not self._departs_later or self._late.leaves_at_once(charges, self.now_us(), self._ahead_us)

    def depart(self, charges: Sequence[Charge]) -> Flow[None]:
        """Wait until a call that departs later may leave, behind those of its first bucket that came before."""
        if not self.departs_at_once(charges):
            yield from self._late.wait(charges, self.clock, self._ahead_us)

    def pass_on(self, decision: Decision) -> Flow[None]:
        """Let the next caller that waits for an equal take go now, with a slot that has come and was not used."""
        now_us, take = self.now_us(), decision.take
        assert take is not None  # it has been booked here
        slot = Slot(now_us, now_us, now_us + LATE_US, take, decision, self._ahead_us)
        surplus = self._queues.swap_for_newest(take, slot)
        if surplus is not None:
            yield self._unused.giving_back(surplus)

    async def sleep_in_task(self, waiter: TaskWaiter, slot: Slot | None = None) -> Slot:
        """Sleep until a waiter leaves; returns its slot. If it has not joined its queue, it does that first."""
        try:
            if waiter.queue is None:
                self._join(waiter, slot)
            while True:
                future = waiter.start_sleep()
                slot = None if future is None else await future
                if type(slot) is not Slot:
                    slot = self._queues.take_slot(waiter, self.now_us())
                if slot is not None:
                    if waiter.has_left:
                        return slot
                    self._book_anew(waiter, slot)
        except GeneratorExit:  # the task is closed, so nothing can be awaited any more
            waiter.give_up()
            self._give_up_at_once(waiter)
            raise
        except BaseException:
            waiter.give_up()
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                await self._unused.give_back_in_turn(surplus)
            raise

    def sleep_in_thread(self, waiter: ThreadWaiter) -> Slot:
        """As ``sleep_in_task``, blocking this thread."""
        while True:
            block(waiter)
            slot = self._queues.take_slot(waiter, self.now_us())
            if slot is not None:
                if waiter.has_left:
                    return slot
                self._book_anew(waiter, slot)

    def _wait_with_own_keys(self, take: Take, own: Take, priority: float) -> Flow[Slot]:
        """``wait`` for several keys. The own ones are held until shortly before the slot, so that they take turns."""
        slot = self._slot_of(take, (yield from self._own_keys.book(take, own, priority)))
        if self._leaves_at_once(take, slot):
            self._own_keys.leave(own)
            return slot
        waiter = yield NewWaiter(self._waiting, take, priority)
        self._join(waiter, slot)
        try:
            try:
                yield from sleep(self.clock, slot.at_us - slot.since_us - AHEAD_US)
            finally:
                self._own_keys.leave(own)
            left: Slot = yield TaskOrThread(partial(self.sleep_in_task, waiter), partial(self.sleep_in_thread, waiter))
        except GeneratorExit:
            self._give_up_at_once(waiter)
            raise
        except BaseException:
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                yield self._unused.giving_back(surplus)
            raise
        return left

    def _slot_at_once(self, take: Take, priority: float) -> Slot | None:
        """The slot that a store in this process books; ``None`` if the waiter has to join its queue first."""
        if not self._in_process or (priority and take.max_wait_us < math.inf):
            return None
        if self._book is not None and take.is_plain:
            booking = self._book(take.charges[0], take.max_wait_us)
            if booking is not None:
                return slot_of_booking(take, booking, self.now_us())
        return self._slot_of(take, self._decide(take))

    def _slot_of(self, take: Take, decision: Decision) -> Slot:
        if not decision.allowed:
            raise pace_timeout(take, decision)
        now_us = self.now_us()
        return slot_of(decision, now_us, now_us)

    def _decide(self, take: Take) -> Decision:
        """The decision of a store in this process."""
        answer = self._submit(take)
        return answer if type(answer) is Decision else background_loop.run_in_place(answer)  # type: ignore[arg-type]

    def _leaves_at_once(self, take: Take, slot: Slot) -> bool:
        now_us = slot.since_us
        if slot.at_us > now_us or (self._queues and self._queues.has(take)):
            return False
        self._ahead_us = slot.ahead_us
        return self._departs_later or self._queues.depart(take.charges, now_us, slot.ahead_us, self._margin) == 0.0

    def _join(self, waiter: Waiter, slot: Slot | None) -> None:
        """Join the queue, with a slot or before one is booked."""
        if slot is not None:
            waiter.asked_us = slot.since_us
            self._queues.join(waiter, slot.since_us, slot)
            if waiter.take.max_wait_us < math.inf:
                self._require_in_time(waiter, slot)
            return
        waiter.asked_us = self.now_us()
        self._queues.join(waiter, waiter.asked_us)
        if self.store.in_process:
            self._book_in_process(waiter, self._take_of(waiter))
        elif isinstance(waiter, TaskWaiter):
            self._send(waiter)
        else:
            background_loop.call_soon(self._send, waiter)

    def _book_in_process(self, waiter: Waiter, take: Take) -> None:
        try:
            decision = self._decide(take)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach the caller
            self._queues.failed(waiter, error)
        else:
            self._booked(waiter, decision)

    def _send(self, waiter: Waiter) -> None:
        """Send the take of a waiter to a store elsewhere, from the running event loop."""
        waiter.asked_us = self.now_us()
        try:
            answer = self._submit(self._take_of(waiter))
        except Exception as error:  # noqa: BLE001  # as above
            self._queues.failed(waiter, error)
            return
        if isinstance(answer, Decision):
            self._booked(waiter, answer)
        else:
            keep(asyncio.ensure_future(answer)).add_done_callback(partial(self._answered, waiter))

    def _answered(self, waiter: Waiter, booking: asyncio.Future[Decision]) -> None:
        error = asyncio.CancelledError() if booking.cancelled() else booking.exception()
        if error is None:
            self._booked(waiter, booking.result())
        else:
            self._queues.failed(waiter, error)

    def _take_of(self, waiter: Waiter) -> Take:
        """What a waiter books: the end of the queue, however far that is, if it does not have to wait for that."""
        take = waiter.take
        if waiter.priority and take.max_wait_us < math.inf and self._queues.has_followers(waiter):
            return replace(take, max_wait=math.inf)
        return take

    def _booked(self, waiter: Waiter, decision: Decision, missed: int = 0) -> None:
        """A waiter has a decision: the slot goes to the queue, and a surplus one back to the store."""
        take = waiter.take
        if not decision.allowed:
            self._queues.failed(waiter, pace_timeout(take, decision))
            return
        slot = slot_of(decision, waiter.asked_us, self.now_us(), missed)
        self._ahead_us = slot.ahead_us
        surplus = self._queues.answered(waiter, slot)
        if surplus is not None:
            self._unused.give_back_later(surplus)
        if not missed:
            self._require_in_time(waiter, slot)

    def _require_in_time(self, waiter: Waiter, slot: Slot) -> None:
        """Fail a waiter whose place in the queue is too far away; an earlier slot may belong to those in front."""
        max_wait_us = waiter.take.max_wait_us
        if max_wait_us < math.inf:
            too_long_us = self._queues.wait_us(waiter, slot.since_us) - max_wait_us
            if too_long_us > 0.0:
                fail(waiter, pace_timeout(waiter.take, as_refused(slot.decision, too_long_us)))

    def _book_anew(self, waiter: Waiter, missed: Slot) -> None:
        """Give a missed slot back, and book another one in place of it, within what is left of its ``max_wait``."""
        waiter.take = self._with_what_is_left(waiter)
        if not self.store.in_process:
            rebooking = self._rebooked(waiter, missed)
            start(rebooking) if isinstance(waiter, TaskWaiter) else background_loop.start(rebooking)
            return
        waiter.asked_us = self.now_us()
        self._unused.give_back_at_once(missed)
        self._book_in_process(waiter, replace(waiter.take, operation=None))

    async def _rebooked(self, waiter: Waiter, missed: Slot) -> None:
        """``_book_anew`` in a store elsewhere."""
        try:
            await self._unused.give_back(missed)
            waiter.asked_us = self.now_us()
            (decision,) = await self.store.take((replace(waiter.take, operation=None),))
        except BaseException as error:  # noqa: BLE001  # as above
            self._queues.failed(waiter, error)
        else:
            self._booked(waiter, decision, missed.missed + 1)

    def _with_what_is_left(self, waiter: Waiter) -> Take:
        """The take of a waiter that has waited since it asked for a slot."""
        take = waiter.take
        if take.max_wait_us == math.inf:
            return take
        left_us = take.max_wait_us - (self.now_us() - waiter.asked_us)
        return replace(take, max_wait=max(left_us, 0.0) / SECOND_US)

    def _give_up_at_once(self, waiter: Waiter) -> None:
        """Leave the queue where nothing can be awaited."""
        surplus = self._queues.leave(waiter)
        if surplus is not None:
            self._unused.give_back_at_once(surplus)

    async def _undo(self, decisions: Sequence[Decision]) -> None:
        """Give back what was booked for a caller that is gone by now; the callers behind it move up."""
        await asyncio.sleep(0)  # first, the other callers of the same batch join their queues
        for decision in decisions:
            if decision.allowed and decision.take is not None:
                now_us = self.now_us()
                surplus = self._queues.swap_for_newest(decision.take, slot_of(decision, now_us, now_us))
                if surplus is not None:
                    await self._unused.give_back(surplus)
