"""Sends one request: waits for a place and a slot, sends it, and perhaps sends it again."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...decision import Decision, Take
from ...hooks.calling import Hooks
from ...limiter import CallCounts, Limiter, count_take
from ...limiter.spend_waiter import SpendWaiter
from ...quotas import SECOND_US
from ...stores import settle
from ...waiting import (
    CallStore,
    ConcurrencyLimit,
    Flow,
    GiveBack,
    PaceTimeout,
    Slot,
    SlotWaiter,
    as_refused,
    of_all,
    pace_timeout,
    run_async,
    run_sync,
    sleep,
)
from .backoff import Refusals
from .exchange import Discard, Send
from .pauses import Pauses, without_condition
from .request_values import PacedRequest
from .retry_after_parsing import THROTTLED
from .settling import Settler, answer_of
from .slowdown import Slowdown
from .watched_bodies import watched


class Sender:
    """Sends the requests of one transport, at most ``concurrency`` of each key at a time.

    An answer says in ``extensions["pace"]`` how its request was sent. Both ways to send raise ``PaceTimeout`` if a
    request cannot go in time, and any error of the wrapped transport. A request that nothing holds up takes no step of
    a flow.
    """

    def __init__(
        self,
        transport: Any,
        limiter: Limiter,
        margin: float,
        concurrency: int | None,
        retries: int,
        settler: Settler | None,
        hooks: Hooks,
    ) -> None:
        store, renewed = limiter.store, limiter.live.renewed
        self._waiter = SlotWaiter(store, margin=margin, departs_later=True, renewed=renewed)
        self._now_us, self._try_depart = self._waiter.now_us, self._waiter.try_depart
        self._transport = transport
        self._spends = None if settler is None else SpendWaiter(store, departs_later=True, renewed=renewed)
        self._limiter, self._live, self._counts = limiter, limiter.live, CallCounts(limiter.store, limiter.name)
        self._concurrency = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._settler = settler
        self._hooks = hooks
        self._has_hooks = bool(hooks)
        hooks.watch(limiter.store)
        self._pauses = Pauses(limiter.store, limiter.name, self._now_us)
        self._slowdown = Slowdown()
        self._refusals = Refusals(self._pauses, self._slowdown, retries, self._waiter)

    async def send_in_task(self, paced: PacedRequest) -> Any:
        """Send a request without blocking the event loop, and return its answer."""
        started_us = self._begin(paced)
        try:
            if self._live.word is not None or not self._has_place(paced):
                return await run_async(self._go_on(paced))
            try:
                take = self._take(paced, paced.max_wait)
                booked: Slot | Decision
                if self._spends is None:
                    booked = await self._waiter.acquire_slot(take)
                else:
                    booked = await run_async(self._wait(paced, take))
                if self._has_hooks or not _is_at_once(booked) or not self._try_depart(take.charges):
                    booked = await run_async(self._confirmed(paced, _decision_of(booked)))
                self._leaves(paced, booked)
                paced.waited_us = self._now_us() - started_us
                response = await self._transport.handle_async_request(paced.request)
            except BaseException:
                self._finish(paced)
                raise
            paced.attempts = 1
            if self._settler is not None or response.status_code in THROTTLED:
                return await run_async(self._go_on(paced, (_decision_of(booked), response)))
            return self._answer(paced, None, response)
        except PaceTimeout as error:
            self._timed_out(paced, error.decision)
            raise
        finally:
            if paced.wait is not None:
                self._end_wait(paced)

    def send_in_thread(self, paced: PacedRequest) -> Any:
        """Send a request, blocking this thread, and return its answer."""
        started_us = self._begin(paced)
        try:
            if self._live.word is not None or not self._has_place(paced):
                return run_sync(self._go_on(paced))
            try:
                take = self._take(paced, paced.max_wait)
                booked: Slot | Decision
                if self._spends is None and len(paced.charges) == 1:
                    booked = self._waiter.acquire_slot_in_thread(take)
                else:
                    booked = run_sync(self._wait(paced, take))
                if self._has_hooks or not _is_at_once(booked) or not self._try_depart(take.charges):
                    booked = run_sync(self._confirmed(paced, _decision_of(booked)))
                self._leaves(paced, booked)
                paced.waited_us = self._now_us() - started_us
                response = self._transport.handle_request(paced.request)
            except BaseException:
                self._finish(paced)
                raise
            paced.attempts = 1
            if self._settler is not None or response.status_code in THROTTLED:
                return run_sync(self._go_on(paced, (_decision_of(booked), response)))
            return self._answer(paced, None, response)
        except PaceTimeout as error:
            self._timed_out(paced, error.decision)
            raise
        finally:
            if paced.wait is not None:
                self._end_wait(paced)

    def _begin(self, paced: PacedRequest) -> float:
        """Set the deadline of a request, and return the time now."""
        if self._has_hooks:
            paced.wait = self._hooks.waiting(self._limiter.name)
        now_us = self._now_us()
        if paced.max_wait < math.inf:
            paced.deadline_us = now_us + paced.max_wait * SECOND_US
        return now_us

    def _go_on(self, paced: PacedRequest, sent: tuple[Decision, Any] | None = None) -> Flow[Any]:
        """Send a request until its answer is final; ``sent`` is the decision and the answer of an earlier attempt."""
        while True:
            if sent is None:
                paced.is_counted = False
                yield from self._wait_for_place(paced)
            try:
                decision, response = sent or (yield from self._attempt(paced))
                backoff_us = yield from self._received(paced, decision, response)
                if backoff_us is None:
                    return self._answer(paced, decision, response)
                yield Discard(response)
            except BaseException:
                self._finish(paced)
                raise
            self._finish(paced)  # others may go while it backs off
            yield from sleep(self._waiter.clock, backoff_us)
            paced.waited_us += backoff_us
            if self._has_hooks:
                paced.wait = self._hooks.waiting(self._limiter.name)
            sent = None

    def _attempt(self, paced: PacedRequest) -> Flow[tuple[Decision, Any]]:
        """Wait for a slot, and send the request; return the decision whose slot is used, and the answer."""
        started_us = self._now_us()
        if self._live.word is not None:
            decision = yield from self._wait_for_pause(paced)
        else:
            decision = yield from self._wait(paced, self._take_later(paced))
            decision = yield from self._confirmed(paced, decision)
            self._leaves(paced, decision)
        paced.waited_us += self._now_us() - started_us
        paced.attempts += 1
        return decision, (yield Send(self._transport, paced.request))

    def _wait_for_pause(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait as under an override in words: for the end of a pause, but for no slot. The decision is counted."""
        while (wait_us := (yield from self._pauses.left_us(paced.key))) > 0.0:
            yield from self._sleep_in_time(paced, wait_us)
        self._end_wait(paced)
        take, paced.is_counted = Take(paced.charges), True
        decision: Decision = yield CallStore(self._limiter.store, count_take(self._limiter, take))
        return decision

    def _has_place(self, paced: PacedRequest) -> bool:
        """Whether fewer than ``concurrency`` requests were under way; then this one is added."""
        if self._concurrency is None:
            return True
        paced.place = self._concurrency.enter(paced.key)
        return paced.place is not None

    def _wait_for_place(self, paced: PacedRequest) -> Flow[None]:
        """Wait until there is a place."""
        if self._concurrency is None or self._has_place(paced):
            return
        started_us = self._now_us()
        clock, deadline_us = self._waiter.clock, paced.deadline_us
        paced.place = yield from self._concurrency.wait_and_enter(paced.key, clock, deadline_us)
        if paced.place is None:
            yield from self._give_up(
                paced, 0.0, f"as many requests as concurrency={self._concurrency.limit} are under way"
            )
        paced.waited_us += self._now_us() - started_us

    def _wait(self, paced: PacedRequest, take: Take) -> Flow[Decision]:
        """Wait for a slot; without booking ahead if costs are settled, so that returned units are used at once."""
        with of_all(take, paced.max_wait):
            if self._spends is None:
                return (yield from self._waiter.wait(take))
            decision = yield from self._spends.wait(take)
        paced.spent = take
        return decision

    def _take_later(self, paced: PacedRequest) -> Take:
        """The take of a request that may already have waited."""
        return self._take(paced, max(paced.deadline_us - self._now_us(), 0.0) / SECOND_US)

    def _take(self, paced: PacedRequest, left: float) -> Take:
        """The take of a request that waits at most ``left`` seconds from now on."""
        charges = paced.charges
        if self._slowdown.keys:
            charges = self._slowdown.slowed(charges, left, self._now_us())
        return self._pauses.take(charges, left, self._settler is not None)

    def _confirmed(self, paced: PacedRequest, decision: Decision) -> Flow[Decision]:
        """The decision whose slot is used, when its call may leave.

        It is another one if a pause has begun after the slot was booked. To find out, the store is queried, and calls
        that pile up meanwhile must not leave together. So the call departs only afterwards.
        """
        while True:
            try:
                has_left = yield from self._departs_unless_paused(paced, decision)
            except GeneratorExit:
                raise
            except BaseException:
                yield from self._pass_on(paced, decision)
                raise
            if has_left:
                if self._has_hooks:
                    self._end_wait(paced, without_condition(decision))
                return decision
            yield from self._give_back(paced, decision)
            decision = yield from self._wait(paced, self._take_later(paced))

    def _departs_unless_paused(self, paced: PacedRequest, decision: Decision) -> Flow[bool]:
        """Whether a request whose slot has come leaves; if not, its key is paused."""
        if decision.degraded:  # without the store, only pauses that began here are known
            wait_us = self._pauses.left_here_us(paced.key)
            if wait_us > 0.0:
                yield from self._sleep_in_time(paced, wait_us)
        if decision.delay > 0.0 and (yield from self._pauses.left_us(paced.key)) > 0.0:
            return False
        yield from self._waiter.depart(paced.charges if decision.take is None else decision.take.charges)
        return True

    def _pass_on(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Let another request go at the slot of one that gives up, or give back what it has taken."""
        if self._spends is None:
            yield from self._waiter.pass_on(decision)
        else:
            yield from self._give_back(paced, decision)

    def _give_back(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Give back what was taken for a request that does not go yet."""
        self._end_spending(paced)
        store, nothing = self._waiter.store, [0.0] * len(decision.states)
        has_departed = store.in_process  # over a remote store, a departure is recorded only at the end
        yield GiveBack(store, partial(settle, store, decision, nothing, is_unused=not has_departed))

    def _sleep_in_time(self, paced: PacedRequest, wait_us: float) -> Flow[None]:
        """Sleep, or give up if that is longer than the request may wait."""
        too_long_us = self._now_us() + wait_us - paced.deadline_us
        if too_long_us > 0.0:
            yield from self._give_up(paced, too_long_us)
        yield from sleep(self._waiter.clock, wait_us)

    def _received(self, paced: PacedRequest, decision: Decision, response: Any) -> Flow[float | None]:
        """Microseconds to sleep before the request is sent again, ``None`` if the answer is final.

        If this raises an exception, the answer is closed.
        """
        try:
            backoff_us = None
            if response.status_code in THROTTLED:
                backoff_us = yield from self._refusals.backoff_us(paced, response, decision.degraded)
            if backoff_us is None and self._settler is not None:
                yield from self._settle_at_headers(self._settler, paced, decision, response)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(response, read=False)
            raise
        return backoff_us

    def _settle_at_headers(
        self, settler: Settler, paced: PacedRequest, decision: Decision, response: Any
    ) -> Flow[None]:
        """Settle now, unless that needs the body, and the body is still to come."""
        if not settler.reads_body or response.is_closed:
            body = response.content if settler.reads_body else b""
            yield from settler.settle(paced.request, paced.cost, decision, answer_of(response, body))

    def _answer(self, paced: PacedRequest, decision: Decision | None, response: Any) -> Any:
        """The answer for the caller; the request is under way until its body is closed.

        The decision is needed only if costs are settled.
        """
        sent = {"waited": paced.waited_us / SECOND_US, "attempts": paced.attempts}
        response.extensions = {**response.extensions, "pace": sent}
        settle_body = None
        if self._settler is not None and decision is not None and self._settler.reads_body:
            settle_body = partial(self._settle_body, self._settler, paced, decision, response)
        if response.is_closed:  # its body has been read, and nobody will close it again
            self._finish(paced)
        elif self._concurrency is not None or settle_body is not None:
            response.stream = watched(response.stream, partial(self._finish, paced), settle_body)
        else:
            self._end_spending(paced)
        return response

    def _settle_body(
        self, settler: Settler, paced: PacedRequest, decision: Decision, response: Any, body: bytes
    ) -> Flow[None]:
        return settler.settle(paced.request, paced.cost, decision, answer_of(response, body))

    def _finish(self, paced: PacedRequest) -> None:
        """Let the next request of this key go."""
        self._end_spending(paced)
        if self._concurrency is not None and paced.place is not None:
            self._concurrency.leave(paced.place)

    def _end_spending(self, paced: PacedRequest) -> None:
        """Note that nothing that was taken for this request can come back any longer."""
        take, paced.spent = paced.spent, None
        if take is not None and self._spends is not None:
            self._spends.finish(take)

    def _give_up(self, paced: PacedRequest, too_long_us: float, because: str = "") -> Flow[None]:
        """Raise ``PaceTimeout``, which says that the slot is too far away, or that there is no place."""
        take = self._pauses.take(paced.charges, paced.max_wait, False)
        peeked: Decision = yield CallStore(self._waiter.store, self._waiter.store.peek(take))
        decision = as_refused(peeked, too_long_us)
        if because:
            raise PaceTimeout(f"no place for {paced.key!r}: {because}, max_delay is {paced.max_wait:g} s", decision)
        raise pace_timeout(take, decision)

    def _leaves(self, paced: PacedRequest, booked: Slot | Decision) -> None:
        """Count a request that goes."""
        if type(booked) is Slot and booked.is_plain:
            self._counts.count_admitted(paced.charges[0].bucket)
        else:
            self._counts.count(_decision_of(booked))
        paced.is_counted = True

    def _timed_out(self, paced: PacedRequest, decision: Decision) -> None:
        """Note that a request gives up, or that a limit of the wrapped transport has refused one that has gone."""
        self._end_wait(paced, decision)
        if not paced.is_counted:
            self._counts.count(decision)

    def _end_wait(self, paced: PacedRequest, decision: Decision | None = None) -> None:
        """End the wait of a request that goes or gives up; call hooks with its decision, if there is one."""
        wait, paced.wait = paced.wait, None
        if wait is not None:
            wait.end(decision)


def _is_at_once(booked: Slot | Decision) -> bool:
    return booked.is_at_once if type(booked) is Slot else not (booked.delay or booked.degraded)


def _decision_of(booked: Slot | Decision) -> Decision:
    return booked.decision if type(booked) is Slot else booked
