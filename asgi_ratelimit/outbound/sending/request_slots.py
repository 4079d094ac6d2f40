"""The slots of requests: each is waited for, checked for pauses when it has come, and given back if it is not used."""

from __future__ import annotations

from functools import partial

from ...decision import Condition, Decision, without
from ...limiter import Limiter
from ...limiter.spending import SpendWaiter
from ...quotas import SECOND_US
from ...stores import settle
from ...waiting import CallStore, Flow, GiveBack, PaceTimeout, as_refused, of_all, pace_timeout, sleep
from .pauses import Pauses
from .request_values import PacedRequest
from .slowdown import Slowdown


class RequestSlots:
    """Waits for the slots of one transport's requests.

    If costs are settled, it does not book ahead, so that units that come back are used at once.
    """

    def __init__(self, limiter: Limiter, margin: float, *, is_settled: bool) -> None:
        self.store = limiter.store
        self.waiter = SpendWaiter(self.store, margin=margin, renewed=limiter.live.renewed)
        self.now_us = self.waiter.now_us
        self.pauses = Pauses(self.store, limiter.name, self.now_us)
        self.slowdown = Slowdown()
        self._is_settled = is_settled

    def wait(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait until a request may leave, within what is left of its longest wait; return the decision that is used.

        A pause may have begun after a slot was booked. To find out, the store is queried when the slot has come. Calls
        that pile up while it stalls must not leave together. So a call departs only afterwards.
        """
        while True:
            decision = yield from self._slot(paced)
            try:
                has_left = yield from self._depart_unless_paused(paced, decision)
            except GeneratorExit:
                raise
            except BaseException:
                yield from self._pass_on(paced, decision)
                raise
            if has_left:
                return without(decision, Condition)
            yield from self._give_back(paced, decision)

    def _slot(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait for a slot; or, if costs are settled, until a take fits."""
        left, charges = max(paced.deadline_us - self.now_us(), 0.0) / SECOND_US, paced.charges
        if self.slowdown.keys:
            charges = self.slowdown.slowed(charges, left, self.now_us())
        take = self.pauses.take(charges, left)
        with of_all(take, paced.max_wait):
            if not self._is_settled:
                return (yield from self.waiter.wait_for_slot(take))
            decision = yield from self.waiter.wait_to_spend(take)
        self.waiter.begin(take)
        paced.spent = take
        return decision

    def _depart_unless_paused(self, paced: PacedRequest, decision: Decision) -> Flow[bool]:
        """Record that a request leaves at its slot, and return true; or return false if its key is paused."""
        if decision.degraded:  # without the store, only pauses that began here are known
            wait_us = self.pauses.left_here_us(paced.key)
            if wait_us > 0.0:
                yield from self._sleep_in_time(paced, wait_us)
        if decision.wait_us > 0.0 and (yield from self.pauses.has_begun(paced.key, decision)):
            return False
        yield from self.waiter.depart(decision)
        return True

    def _pass_on(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Let another request go at the slot of one that gives up, or give back what it has taken."""
        if self._is_settled:
            yield from self._give_back(paced, decision)
        else:
            yield from self.waiter.pass_on(decision)

    def _give_back(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Give back what was taken for a request that does not go yet."""
        self.end_spending(paced)
        nothing = [0.0] * len(decision.charges)
        yield GiveBack(self.store, partial(settle, self.store, decision, nothing, is_unused=True))

    def end_spending(self, paced: PacedRequest) -> None:
        """Note that nothing that was taken for this request can come back any longer."""
        take, paced.spent = paced.spent, None
        if take is not None:
            self.waiter.finish(take)

    def wait_for_pause(self, paced: PacedRequest) -> Flow[None]:
        """Wait as under an override in words: for the end of a pause, but for no slot."""
        while (wait_us := (yield from self.pauses.left_us(paced.key))) > 0.0:
            yield from self._sleep_in_time(paced, wait_us)

    def _sleep_in_time(self, paced: PacedRequest, wait_us: float) -> Flow[None]:
        """Sleep, or give up if that is longer than the request may wait."""
        too_long_us = self.now_us() + wait_us - paced.deadline_us
        if too_long_us > 0.0:
            yield from self.give_up(paced, too_long_us)
        yield from sleep(self.waiter.clock, wait_us)

    def give_up(self, paced: PacedRequest, too_long_us: float, because: str = "") -> Flow[None]:
        """Raise ``PaceTimeout``, which says that the slot is too far away, or that there is no place."""
        take = self.pauses.take(paced.charges, paced.max_wait)
        peeked: Decision = yield CallStore(self.store, self.store.peek(take))
        decision = as_refused(peeked, too_long_us)
        if because:
            raise PaceTimeout(f"no place for {paced.key!r}: {because}, max_delay is {paced.max_wait:g} s", decision)
        raise pace_timeout(take, decision)
