"""Sends one request: waits for a place and a slot, sends it, and perhaps sends it again."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..decision import Charge, Condition, Decision, Take, without
from ..leases import PlaceWaiter, leases_of
from ..limiter.spending import SpendWaiter
from ..quotas import SECOND_US, InFlight
from ..stores import settle
from ..waiting.drivers import Flow, GiveBack, sleep
from ..waiting.queues import ConcurrencyLimit
from ..waiting.waiter import PaceTimeout, too_late
from .exchange import Discard, Send, watched
from .outbound_limiter import OutboundLimiter
from .pauses import Pauses
from .refusals import THROTTLED, Refusals
from .request_values import PacedRequest, Settler


class Sender:
    """Sends the requests of one transport, at most ``concurrency`` of each key at a time, in all processes on a store.

    Each is waited for, checked for pauses when its slot has come, and given back if it is not used. If costs are
    settled, no slot is booked ahead, so that units that come back are used at once. An answer says in
    ``extensions["pace"]`` how its request was sent. Raises ``PaceTimeout`` if a request cannot go in time, and any
    error of the wrapped transport.
    """

    def __init__(
        self, transport: Any, limiter: OutboundLimiter, concurrency: int | None, retries: int, settler: Settler | None
    ) -> None:
        self._transport = transport
        self._limiter = limiter
        self._store = limiter.store
        self._concurrency = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._in_flight = InFlight(concurrency, "concurrency") if concurrency and not self._store.in_process else None
        self._places = PlaceWaiter(self._store)
        self._settler = settler
        self._waiter = SpendWaiter(self._store, margin=limiter.margin, renewed=limiter.live.renewed)
        self._waiter.departs = False
        self._clock, self._now_us = self._waiter.clock, self._waiter.now_us
        self._pauses = Pauses(self._store, limiter.name, self._now_us)
        self._refusals = Refusals(self._pauses, retries, self._waiter)

    def send(self, paced: PacedRequest) -> Flow[Any]:
        """Send a request when its turn has come, perhaps several times, and return its answer."""
        paced.deadline_us = self._now_us() + paced.take.max_wait * SECOND_US
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

    # Before a request

    def _attempt(self, paced: PacedRequest) -> Flow[tuple[Decision, Any]]:
        """Wait for a place and a slot, and send the request; return the decision that is used, and the answer."""
        started_us = self._now_us()
        if self._limiter.live.word is not None:  # no slot is waited for, but the end of a pause is
            yield from self._wait_for_place(paced)
            while (wait_us := (yield from self._pauses.left_us(paced.key))) > 0.0:
                yield from self._sleep_in_time(paced, wait_us)
        decision = yield from self._limiter.admitted(paced.take, lambda _: self._wait(paced))
        paced.waited_us += self._now_us() - started_us
        paced.attempts += 1
        sent_us = self._now_us()
        response = yield Send(self._transport, paced.request)
        paced.deadline_us += self._now_us() - sent_us  # only what it waits counts
        return decision, response

    def _wait_for_place(self, paced: PacedRequest) -> Flow[None]:
        """Wait until there is a place, unless the request has one."""
        if self._concurrency is None or paced.place is not None:
            return
        if self._in_flight is not None:
            charge = Charge(self._in_flight, paced.key, 1, self._limiter.name)
            take = Take((charge,), paced.take.max_wait, on_error=paced.take.on_error)
            paced.place = yield from self._places.wait_for_place(take, paced.deadline_us)
            return
        paced.place = yield from self._concurrency.wait_and_enter(paced.key, self._clock, paced.deadline_us)
        if paced.place is None:
            places = f"as many requests as concurrency={self._concurrency.places} are under way"
            text = f"no place for {paced.key!r}: {places}, max_delay is {paced.take.max_wait:g} s"
            raise PaceTimeout(text, (yield from self._too_late(paced, 0.0)).decision)

    def _wait(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait until a request may leave, within what is left of its longest wait; return the decision that is used.

        A pause may have begun after a slot was booked. To find out, the store is queried when the slot has come. Calls
        that pile up while it stalls must not leave together. So a call departs only afterwards.
        """
        yield from self._wait_for_place(paced)
        while True:
            decision = yield from self._slot(paced)
            try:
                here_us = self._pauses.left_here_us(paced.key) if decision.degraded else 0.0
                if here_us > 0.0:  # without the store, only pauses that began here are known
                    yield from self._sleep_in_time(paced, here_us)
                if decision.wait_us <= 0.0 or not (yield from self._pauses.has_begun(paced.key, decision)):
                    yield from self._waiter.depart(decision)
                    return decision if decision.take is paced.take else without(decision, Condition)
            except GeneratorExit:
                raise
            except BaseException:
                if self._settler is None:
                    yield from self._waiter.pass_on(decision)
                else:
                    yield from self._give_back(paced, decision)
                raise
            yield from self._give_back(paced, decision)

    def _slot(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait for a slot; or, if costs are settled, until a take fits."""
        take = self._pauses.take(self._refusals.slowed(paced.take), is_repeated=self._settler is not None)
        if self._settler is None:
            return (yield from self._waiter.wait(take, deadline_us=paced.deadline_us))
        decision = yield from self._waiter.wait_to_spend(take, paced.deadline_us)
        self._waiter.units.blocks[id(take)] = take
        paced.spent = take
        return decision

    def _give_back(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Give back what was taken for a request that does not go yet."""
        self._end_spending(paced)
        nothing = [0.0] * len(decision.charges)
        yield GiveBack(self._store, partial(settle, self._store, decision, nothing, is_unused=True))

    def _sleep_in_time(self, paced: PacedRequest, wait_us: float) -> Flow[None]:
        """Sleep; raises ``PaceTimeout`` if that is longer than the request may wait."""
        too_long_us = self._now_us() + wait_us - paced.deadline_us
        if too_long_us > 0.0:
            raise (yield from self._too_late(paced, too_long_us))
        yield from sleep(self._clock, wait_us)

    def _too_late(self, paced: PacedRequest, too_long_us: float) -> Flow[PaceTimeout]:
        take = self._pauses.take(paced.take)
        return too_late(take, (yield from self._waiter.peeked(take)), too_long_us)

    # After an answer

    def _received(self, paced: PacedRequest, decision: Decision, response: Any) -> Flow[float | None]:
        """Microseconds to sleep before the request is sent again, ``None`` if the answer is final.

        If this raises an exception, the answer is closed. A final answer is settled now, unless that needs its body,
        and the body is still to come.
        """
        settler, backoff_us = self._settler, None
        try:
            if response.status_code in THROTTLED:
                backoff_us = yield from self._refusals.backoff_us(paced, response, decision.degraded)
            if backoff_us is None and settler is not None and (not settler.reads_body or response.is_closed):
                body = response.content if settler.reads_body else b""
                yield from settler.settle(paced, decision, response, body)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                yield Discard(response)
            raise
        return backoff_us

    def _answer(self, paced: PacedRequest, decision: Decision, response: Any) -> Any:
        """The answer for the caller; the request is under way until its body is closed."""
        sent = {"waited": paced.waited_us / SECOND_US, "attempts": paced.attempts}
        response.extensions = {**response.extensions, "pace": sent}
        settler = self._settler
        settle_body = partial(settler.settle, paced, decision, response) if settler and settler.reads_body else None
        if response.is_closed:  # its body has been read, and nobody will close it again
            self._finish(paced)
        elif self._concurrency is not None or settle_body is not None:
            response.stream = watched(response.stream, partial(self._finish, paced), settle_body)
        else:
            self._end_spending(paced)
        return response

    def _finish(self, paced: PacedRequest) -> None:
        """Let the next request of this key go."""
        self._end_spending(paced)
        place, paced.place = paced.place, None
        if isinstance(place, Decision):
            leases_of(self._store).release(place)
        elif self._concurrency is not None and place is not None:
            self._concurrency.leave(place)

    def _end_spending(self, paced: PacedRequest) -> None:
        """Note that this request is over: others no longer wait for what it may give back."""
        take, paced.spent = paced.spent, None
        if take is not None:
            self._waiter.units.blocks.pop(id(take), None)
