"""Sends one request: waits for a place and a slot, sends it, and perhaps sends it again."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...decision import Decision
from ...hooks.calling import Hooks
from ...limiter import Limiter
from ...quotas import SECOND_US
from ...waiting import ConcurrencyLimit, Flow, PaceTimeout, sleep
from .backoff import THROTTLED, Refusals
from .exchange import Discard, Send
from .request_slots import RequestSlots
from .request_values import PacedRequest
from .settling import Settler
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
        self._transport = transport
        self._live = limiter.live
        self._concurrency = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._settler = settler
        self._has_hooks = bool(hooks)
        self._slots = slots = RequestSlots(limiter, margin, settler is not None, hooks)
        self._waiter, self._now_us = slots.waiter, slots.now_us
        self._refusals = Refusals(slots.pauses, slots.slowdown, retries, slots.waiter)

    def send(self, paced: PacedRequest) -> Flow[Any]:
        """Send a request when its turn has come, perhaps several times, and return its answer."""
        self._slots.begin(paced)
        try:
            return (yield from self._go_on(paced))
        except PaceTimeout as error:
            self._slots.timed_out(paced, error.decision)
            raise
        finally:
            if paced.wait is not None:
                self._slots.end_wait(paced)

    def _go_on(self, paced: PacedRequest) -> Flow[Any]:
        """Send a request until its answer is final."""
        while True:
            paced.is_counted = False
            yield from self._wait_for_place(paced)
            try:
                decision, response = yield from self._attempt(paced)
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
                self._slots.begin_wait(paced)

    def _attempt(self, paced: PacedRequest) -> Flow[tuple[Decision, Any]]:
        """Wait for a slot, and send the request; return the decision whose slot is used, and the answer."""
        started_us, decision = self._now_us(), None
        if self._live.word is not None:
            decision = yield from self._slots.wait_for_pause(paced)
        if decision is None:
            decision = yield from self._slots.wait_again(paced)
            decision = yield from self._slots.confirmed(paced, decision)
            self._slots.count(paced, decision)
        paced.waited_us += self._now_us() - started_us
        paced.attempts += 1
        return decision, (yield Send(self._transport, paced.request))

    def _wait_for_place(self, paced: PacedRequest) -> Flow[None]:
        """Wait until there is a place."""
        if self._concurrency is None:
            return
        started_us = self._now_us()
        clock, deadline_us = self._waiter.clock, paced.deadline_us
        paced.place = yield from self._concurrency.wait_and_enter(paced.key, clock, deadline_us)
        if paced.place is None:
            yield from self._slots.give_up(
                paced, 0.0, f"as many requests as concurrency={self._concurrency.places} are under way"
            )
        paced.waited_us += self._now_us() - started_us

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
            yield from settler.settle(paced, decision, response, response.content if settler.reads_body else b"")

    def _answer(self, paced: PacedRequest, decision: Decision | None, response: Any) -> Any:
        """The answer for the caller; the request is under way until its body is closed.

        The decision is needed only if costs are settled.
        """
        sent = {"waited": paced.waited_us / SECOND_US, "attempts": paced.attempts}
        response.extensions = {**response.extensions, "pace": sent}
        settle_body = None
        if self._settler is not None and decision is not None and self._settler.reads_body:
            settle_body = partial(self._settler.settle, paced, decision, response)
        if response.is_closed:  # its body has been read, and nobody will close it again
            self._finish(paced)
        elif self._concurrency is not None or settle_body is not None:
            response.stream = watched(response.stream, partial(self._finish, paced), settle_body)
        else:
            self._slots.end_spending(paced)
        return response

    def _finish(self, paced: PacedRequest) -> None:
        """Let the next request of this key go."""
        self._slots.end_spending(paced)
        place, paced.place = paced.place, None
        if self._concurrency is not None and place is not None:
            self._concurrency.leave(place)
