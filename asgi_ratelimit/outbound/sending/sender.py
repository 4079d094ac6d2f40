"""Sends one request: waits for a place and a slot, sends it, and perhaps sends it again."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...decision import Decision, Take
from ...limiter import Limiter
from ...quotas import SECOND_US
from ...waiting import ConcurrencyLimit, Flow, sleep
from .backoff import THROTTLED, Refusals
from .exchange import Discard, Send
from .request_slots import RequestSlots
from .request_values import PacedRequest
from .settling import Settler
from .watched_bodies import watched


class Sender:
    """Sends the requests of one transport, at most ``concurrency`` of each key at a time.

    An answer says in ``extensions["pace"]`` how its request was sent. Raises ``PaceTimeout`` if a request cannot go in
    time, and any error of the wrapped transport.
    """

    def __init__(
        self,
        transport: Any,
        limiter: Limiter,
        margin: float,
        concurrency: int | None,
        retries: int,
        settler: Settler | None,
    ) -> None:
        self._transport = transport
        self._limiter = limiter
        self._concurrency = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._settler = settler
        self._slots = slots = RequestSlots(limiter, margin, is_settled=settler is not None)
        self._clock, self._now_us = slots.waiter.clock, slots.now_us
        self._refusals = Refusals(slots.pauses, slots.slowdown, retries, slots.waiter)

    def send(self, paced: PacedRequest) -> Flow[Any]:
        """Send a request when its turn has come, perhaps several times, and return its answer."""
        paced.deadline_us = self._now_us() + paced.max_wait * SECOND_US
        while True:
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
            yield from sleep(self._clock, backoff_us)
            paced.waited_us += backoff_us

    def _attempt(self, paced: PacedRequest) -> Flow[tuple[Decision, Any]]:
        """Wait for a place and a slot, and send the request; return the decision that is used, and the answer."""
        started_us = self._now_us()
        if self._limiter.live.word is not None:
            yield from self._wait_for_place(paced)
            yield from self._slots.wait_for_pause(paced)
        decision = yield from self._limiter.admitted(Take(paced.charges), lambda _: self._wait(paced))
        paced.waited_us += self._now_us() - started_us
        paced.attempts += 1
        return decision, (yield Send(self._transport, paced.request))

    def _wait(self, paced: PacedRequest) -> Flow[Decision]:
        yield from self._wait_for_place(paced)
        return (yield from self._slots.wait(paced))

    def _wait_for_place(self, paced: PacedRequest) -> Flow[None]:
        """Wait until there is a place, unless the request has one."""
        if self._concurrency is None or paced.place is not None:
            return
        paced.place = yield from self._concurrency.wait_and_enter(paced.key, self._clock, paced.deadline_us)
        if paced.place is None:
            yield from self._slots.give_up(
                paced, 0.0, f"as many requests as concurrency={self._concurrency.places} are under way"
            )

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

    def _answer(self, paced: PacedRequest, decision: Decision, response: Any) -> Any:
        """The answer for the caller; the request is under way until its body is closed."""
        sent = {"waited": paced.waited_us / SECOND_US, "attempts": paced.attempts}
        response.extensions = {**response.extensions, "pace": sent}
        settle_body = None
        if self._settler is not None and self._settler.reads_body:
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
