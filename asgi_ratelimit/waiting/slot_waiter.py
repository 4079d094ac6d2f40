"""What a paced caller does: book a slot, sleep once, go; and what happens if it is cancelled, or wakes too late."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..clock import Clock, time_of
from ..decision import Charge, Decision, Take
from ..errors import StoreError
from ..quotas import SECOND_US
from ..stores import Store, settle, submitter
from . import background_loop
from .drivers import (
    BookSlot,
    Flow,
    GiveBack,
    NewWakeUp,
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
from .slots.late_departures import LateDepartures
from .slots.queues import Waiter
from .slots.slot import LATE_US, Slot, slot_of
from .timeouts import as_refused, pace_timeout
from .wakeups import LoopWakeUp, ThreadWakeUp


class SlotWaiter:
    """Waits for slots of one store, in the order of all its callers in this process, on any event loop or thread.

    With ``departs_later``, a call over a store elsewhere leaves only at ``departs_at_once`` or ``depart``, which its
    caller has to call: so the store can be asked in between.
    """

    def __init__(self, store: Store, *, departs_later: bool = False) -> None:
        self.store = store
        self.clock: Clock | None = getattr(store, "clock", None)  # only stores that run on another clock have one
        self.now_us = time_of(self.clock)
        waiters = waiters_of(store)
        self._queues, self.crowds = waiters.slots, waiters.crowds
        self._submit = submitter(store)
        self._in_process = store.in_process
        self._departs_later = departs_later and not store.in_process
        self._late = LateDepartures(waiters.slots, waiters.departing, waiters.settled)
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
            return (yield from self._wait_with_own_keys(take, own, priority))
        decision: Decision = yield TaskOrThread(
            partial(self.acquire, take, priority), partial(self.acquire_in_thread, take, priority)
        )
        return decision

    async def acquire(self, take: Take, priority: float = 0.0, has_turn: bool = False) -> Decision:
        """``wait`` for code with ``async``, without a flow. Raises ``ConfigurationError`` without asyncio.

        In a crowd, the caller first waits for its turn, unless it has done that.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise no_event_loop() from None
        turn = None if has_turn else self.crowds.turn()
        if turn is not None:
            try:
                await turn
            finally:
                self.crowds.pass_turn()
        if len(take.charges) > 1:
            own = own_part(take)
            if own is not None:
                return await run_async(self._wait_with_own_keys(take, own, priority))
        decision = self._decide_at_once(take, priority)
        if decision is not None and self._leaves_at_once(take, decision):
            return decision
        waiter = Waiter(take, LoopWakeUp(self.clock), priority, self._departs_later)
        try:
            self._join(waiter, decision)
            return await self.sleep_in_task(waiter)
        except GeneratorExit:  # the task is closed, so nothing can be awaited any more
            self._give_up_at_once(waiter)
            raise
        except BaseException:
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                await self._give_back_in_turn(surplus)
            raise

    def acquire_in_thread(self, take: Take, priority: float = 0.0) -> Decision:
        """``wait`` for code without ``async``, for charges of one key."""
        decision = self._decide_at_once(take, priority)
        if decision is not None and self._leaves_at_once(take, decision):
            return decision
        waiter = Waiter(take, ThreadWakeUp(self.clock), priority, self._departs_later)
        try:
            self._join(waiter, decision)
            return self.sleep_in_thread(waiter)
        except BaseException:
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                GiveBack(self.store, self._give_back(surplus)).in_thread()
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
        now_us = self.now_us()
        assert decision.take is not None  # it has been booked here
        surplus = self._queues.swap_for_newest(decision.take, Slot(now_us, now_us + LATE_US, decision, self._ahead_us))
        if surplus is not None:
            yield GiveBack(self.store, self._give_back(surplus))

    async def sleep_in_task(self, waiter: Waiter) -> Decision:
        """Sleep until a waiter leaves; returns the decision of its slot."""
        while True:
            await waiter.wake_up.sleep()  # type: ignore[attr-defined]  # it was made for a task
            decision = self._decision_at_departure(waiter)
            if decision is not None:
                return decision

    def sleep_in_thread(self, waiter: Waiter) -> Decision:
        """As ``sleep_in_task``, blocking this thread."""
        while True:
            block(waiter.wake_up)  # type: ignore[arg-type]  # it was made for a thread
            decision = self._decision_at_departure(waiter)
            if decision is not None:
                return decision

    def _wait_with_own_keys(self, take: Take, own: Take, priority: float) -> Flow[Decision]:
        """``wait`` for several keys. The own ones are held until shortly before the slot, so that they take turns."""
        decision = yield from self._own_keys.book(take, own, priority)
        if self._leaves_at_once(take, decision):
            self._own_keys.leave(own)
            return decision
        waiter = Waiter(take, (yield NewWakeUp(self.clock)), priority, self._departs_later)
        self._join(waiter, decision)
        try:
            try:
                yield from sleep(self.clock, decision.delay * SECOND_US - AHEAD_US)
            finally:
                self._own_keys.leave(own)
            left: Decision = yield TaskOrThread(
                partial(self.sleep_in_task, waiter), partial(self.sleep_in_thread, waiter)
            )
        except GeneratorExit:
            self._give_up_at_once(waiter)
            raise
        except BaseException:
            surplus = self._queues.leave(waiter)
            if surplus is not None:
                yield GiveBack(self.store, self._give_back(surplus))
            raise
        return left

    def _decide_at_once(self, take: Take, priority: float) -> Decision | None:
        """The decision of a store in this process; ``None`` if the waiter has to join its queue first."""
        if not self._in_process or (priority and take.max_wait_us < math.inf):
            return None
        decision = self._decide(take)
        if not decision.allowed:
            raise pace_timeout(take, decision)
        return decision

    def _decide(self, take: Take) -> Decision:
        """The decision of a store in this process."""
        answer = self._submit(take)
        return answer if type(answer) is Decision else background_loop.run_in_place(answer)  # type: ignore[arg-type]

    def _leaves_at_once(self, take: Take, decision: Decision) -> bool:
        if decision.delay or (self._queues and self._queues.has(take)):
            return False
        now_us = self.now_us()
        self._ahead_us = decision.now_us - now_us
        return self._departs_later or self._queues.leave_at_once(take.charges, now_us, decision.now_us - now_us)

    def _join(self, waiter: Waiter, decision: Decision | None) -> None:
        """Join the queue, with a decision or before the slot is booked."""
        waiter.asked_us = self.now_us()
        self._queues.join(waiter, waiter.asked_us)
        if decision is not None:
            self._booked(waiter, decision)
        elif self.store.in_process:
            self._book_in_process(waiter, self._take_of(waiter))
        elif isinstance(waiter.wake_up, LoopWakeUp):
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
        now_us = self.now_us()
        self._ahead_us = decision.now_us - now_us
        surplus = self._queues.answered(waiter, slot_of(decision, waiter.asked_us, now_us, missed))
        if surplus is not None:
            self._give_back_later(surplus)
        if take.max_wait_us < math.inf and not missed:  # an earlier slot may belong to the callers in front
            too_long_us = self._queues.wait_us(waiter, now_us) - take.max_wait_us
            if too_long_us > 0.0:
                waiter.fail(pace_timeout(take, as_refused(decision, too_long_us)))

    def _decision_at_departure(self, waiter: Waiter) -> Decision | None:
        """The decision of the slot at which a waiter leaves now; ``None`` if it has to sleep."""
        while waiter.error is None:
            slot = self._queues.take_slot(waiter, self.now_us())
            if slot is None:
                return None
            if waiter.has_left:
                return slot.decision
            self._book_anew(waiter, slot)
        raise waiter.error

    def _book_anew(self, waiter: Waiter, missed: Slot) -> None:
        """Give a missed slot back, and book another one in place of it, within what is left of its ``max_wait``."""
        waiter.take = self._with_what_is_left(waiter)
        if not self.store.in_process:
            rebooking = self._rebooked(waiter, missed)
            start(rebooking) if isinstance(waiter.wake_up, LoopWakeUp) else background_loop.start(rebooking)
            return
        waiter.asked_us = self.now_us()
        background_loop.run_in_place(self._give_back(missed))
        self._book_in_process(waiter, replace(waiter.take, operation=None))

    async def _rebooked(self, waiter: Waiter, missed: Slot) -> None:
        """``_book_anew`` in a store elsewhere."""
        try:
            await self._give_back(missed)
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
        """Leave the queue where nothing can be awaited; a store elsewhere keeps the surplus slot booked."""
        surplus = self._queues.leave(waiter)
        if surplus is not None and self.store.in_process:
            background_loop.run_in_place(self._give_back(surplus))

    def _give_back_later(self, surplus: Slot) -> None:
        """Give a slot back from a callback, which cannot wait for that."""
        if self.store.in_process:
            background_loop.run_in_place(self._give_back(surplus))
        else:
            start(self._give_back(surplus))

    async def _give_back_in_turn(self, slot: Slot) -> None:
        """Give a slot back; if many callers are cancelled at once, a few at a time."""
        turn = self.crowds.turn() if self._in_process else None
        try:
            if turn is not None:
                await turn
        finally:
            if turn is not None:
                self.crowds.pass_turn()
            await GiveBack(self.store, self._give_back(slot)).in_task()

    async def _give_back(self, slot: Slot) -> None:
        """Give a slot back. While the store is out, it stays booked: later callers wait longer."""
        decision = slot.decision
        with contextlib.suppress(StoreError):
            await settle(self.store, decision, [0.0] * len(decision.states), is_unused=True)

    async def _undo(self, decisions: Sequence[Decision]) -> None:
        """Give back what was booked for a caller that is gone by now; the callers behind it move up."""
        await asyncio.sleep(0)  # first, the other callers of the same batch join their queues
        for decision in decisions:
            if decision.allowed and decision.take is not None:
                now_us = self.now_us()
                surplus = self._queues.swap_for_newest(decision.take, slot_of(decision, now_us, now_us))
                if surplus is not None:
                    await self._give_back(surplus)
