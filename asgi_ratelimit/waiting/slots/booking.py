"""Books slots: at once, for a caller that waits in its queue, or to replace a slot that was missed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from ...decision import Decision, Take
from ...quotas import SECOND_US
from ...stores import Decisions, Store
from ...stores.event_loops import LONGEST, keep, until_done_in_any_case
from .. import background_loop
from ..flow_drivers import see_through, start
from ..timeouts import as_refused, pace_timeout
from .caller_queue import TaskWaiter, Waiter, fail
from .slot import Slot, slot_of
from .slot_queues import SlotQueues
from .unused_slots import UnusedSlots


class SlotBooking:
    """Books slots of one store; their decisions go to the waiters, and their slots to the queues.

    ``ahead_us`` is the time of the store minus that of the local clock, as of its last answer.
    """

    def __init__(self, store: Store, queues: SlotQueues, unused: UnusedSlots, now_us: Callable[[], float]) -> None:
        self._store = store
        self._queues = queues
        self._unused = unused
        self._now_us = now_us
        self._in_process = store.in_process
        self.ahead_us = 0.0
        self.answered: Callable[[Decision, float], None] | None = None
        """Called with each decision of a remote store, and the microseconds that its answer took."""

    def submit(self, take: Take) -> Decision | Awaitable[Decision]:
        """The decision of one take, or an awaitable of it if the store has to wait."""
        answer = self._store.take((take,))
        return answer[0] if type(answer) is Decisions else _first(answer)

    def slot_at_once(self, take: Take, priority: float) -> Slot | None:
        """The slot that a store in this process books; ``None`` if the waiter has to join its queue first."""
        if not self._in_process or (priority and take.max_wait_us < math.inf):
            return None
        return self.slot_of(take, self._decide(take))

    def slot_of(self, take: Take, decision: Decision) -> Slot:
        """The slot of a decision that has only just come. Raises ``PaceTimeout`` for a refusal."""
        if not decision.allowed:
            raise pace_timeout(take, decision)
        now_us = self._now_us()
        return slot_of(decision, now_us, now_us)

    def _decide(self, take: Take) -> Decision:
        """The decision of a store in this process."""
        answer = self.submit(take)
        return answer if type(answer) is Decision else background_loop.run_in_place(answer)  # type: ignore[arg-type]

    def join(self, waiter: Waiter, slot: Slot | None) -> None:
        """Join the queue, with a slot or before one is booked."""
        if slot is not None:
            self._queues.join(waiter, slot.since_us, slot)
            if waiter.take.max_wait_us < math.inf:
                self._require_in_time(waiter, slot)
            return
        is_task = isinstance(waiter, TaskWaiter)
        if not (is_task or self._in_process):
            background_loop.require_other_thread()
        self._queues.join(waiter, self._now_us())
        if self._in_process:
            self._book_in_process(waiter, self._take_of(waiter))
        elif is_task:
            self._send(waiter)
        else:
            background_loop.call_soon(self._send, waiter)

    def _book_in_process(self, waiter: Waiter, take: Take, missed: Slot | None = None) -> None:
        sent_us = self._now_us()
        try:
            decision = self._decide(take)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach the caller
            self._failed(waiter, error)
        else:
            self._booked(waiter, take, sent_us, decision, missed)

    def _send(self, waiter: Waiter) -> None:
        """Send the take of a waiter to a remote store, from the running event loop."""
        take, sent_us = self._take_of(waiter), self._now_us()
        try:
            answer = self.submit(take)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(waiter, error)
            return
        if isinstance(answer, Decision):
            self._booked(waiter, take, sent_us, answer)
        else:
            booking = keep(self._store, asyncio.ensure_future(answer))
            booking.add_done_callback(partial(self._answered, waiter, take, sent_us))
            waiter.bookings += 1
            waiter.under_way += (booking,)

    def _answered(self, waiter: Waiter, take: Take, sent_us: float, booking: asyncio.Future[Decision]) -> None:
        waiter.bookings -= 1
        error = asyncio.CancelledError() if booking.cancelled() else booking.exception()
        if error is None:
            self._booked(waiter, take, sent_us, booking.result())
        else:
            self._failed(waiter, error)

    def _take_of(self, waiter: Waiter) -> Take:
        """The take that a waiter sends: for a slot however far away, if the waiter does not have to wait for it."""
        take = waiter.take
        if waiter.priority and take.max_wait_us < math.inf and self._queues.has_followers(waiter):
            return replace(take, max_wait=math.inf)
        return take

    def _booked(
        self, waiter: Waiter, take: Take, sent_us: float, decision: Decision, missed: Slot | None = None
    ) -> None:
        """Handle the decision of a waiter: the slot goes to the queue, and a surplus one back to the store."""
        if self.answered is not None:
            self.answered(decision, self._now_us() - sent_us)
        if not decision.allowed:
            self._failed(waiter, pace_timeout(take, decision, waiter.take.max_wait))
            return
        slot = slot_of(decision, sent_us, self._now_us(), missed.missed + 1 if missed and not self._in_process else 0)
        self.ahead_us = slot.ahead_us
        for surplus in self._queues.answered(waiter, slot, sent_us):
            self._unused.give_back_later(surplus, waiter.add_under_way)
        if missed is None:
            self._require_in_time(waiter, slot)

    def _failed(self, waiter: Waiter, error: BaseException) -> None:
        """Handle a booking that has failed."""
        for surplus in self._queues.failed(waiter, error):
            self._unused.give_back_later(surplus, waiter.add_under_way)

    def _require_in_time(self, waiter: Waiter, slot: Slot) -> None:
        """Fail a waiter whose place in the queue is too far away; an earlier slot may belong to those in front."""
        max_wait_us = waiter.take.max_wait_us
        if max_wait_us < math.inf:
            too_long_us = self._queues.wait_us(waiter, slot.since_us) - max_wait_us
            if too_long_us > 0.0:
                fail(waiter, pace_timeout(waiter.take, as_refused(slot.decision, too_long_us)))

    def book_anew(self, waiter: Waiter, missed: Slot) -> None:
        """Give a missed slot back, and book another one in place of it.

        ``waiter`` is the first one. If others are behind it, the new slot is for the last of them, however far away:
        all move down by one slot, and those for whom that is too late fail at their deadlines.
        """
        if not self._in_process:
            waiter.bookings += 1
            rebooking = self._rebooked(waiter, missed)
            if isinstance(waiter, TaskWaiter):
                waiter.under_way += (start(self._store, rebooking),)
            else:
                background_loop.start(rebooking)
            return
        self._unused.give_back_at_once(missed)
        self._book_in_process(waiter, self._anew(waiter), missed)

    async def _rebooked(self, waiter: Waiter, missed: Slot) -> None:
        """``book_anew`` in a remote store."""
        try:
            await self._unused.give_back([missed])
            take, sent_us = self._anew(waiter), self._now_us()
            (decision,) = await self._store.take((take,))
        except BaseException as error:  # noqa: BLE001  # as above
            if waiter.bookings:  # otherwise, the queue has dropped it
                waiter.bookings -= 1
                self._failed(waiter, error)
        else:
            waiter.bookings -= 1
            self._booked(waiter, take, sent_us, decision, missed)

    def _anew(self, waiter: Waiter) -> Take:
        """What is booked in place of a slot that a waiter has missed: alone, it waits no longer than its deadline."""
        left_us = waiter.left_us(self._now_us())
        if left_us < math.inf and self._queues.has_followers(waiter):
            left_us = math.inf
        return replace(waiter.take, max_wait=max(left_us, 0.0) / SECOND_US, operation=None)

    async def see_through(self, waiter: TaskWaiter) -> None:
        """Wait until the slot of a waiter that has left is booked, and given back if nobody uses it."""
        if not waiter.has_ended:
            await see_through(self._store, partial(until_done_in_any_case, lambda: waiter.under_way), LONGEST)

    async def undo(self, decision: Decision) -> None:
        """Give back what was booked for a caller that is gone by now; the callers behind it move up."""
        await asyncio.sleep(0)  # first, the other callers of the same batch join their queues
        if decision.allowed:
            now_us = self._now_us()
            surplus = self._queues.swap_for_newest(decision.take, slot_of(decision, now_us, now_us))
            if surplus is not None:
                await self._unused.giving_back(surplus).in_task()


async def _first(answer: Awaitable[list[Decision]]) -> Decision:
    return (await answer)[0]
