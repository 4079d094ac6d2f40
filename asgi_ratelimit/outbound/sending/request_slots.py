"""The slots of requests: each is waited for, checked for pauses when it has come, and given back if it is not used."""

from __future__ import annotations

import math
from functools import partial

from ...decision import Condition, Decision, Take, without
from ...hooks.calling import Hooks
from ...limiter import Limiter
from ...limiter.spending import SpendWaiter
from ...quotas import SECOND_US
from ...stores import settle
from ...waiting import CallStore, Flow, GiveBack, PaceTimeout, SlotWaiter, as_refused, of_all, pace_timeout, sleep
from .pauses import Pauses
from .request_values import PacedRequest
from .slowdown import Slowdown


class RequestSlots:
    """Waits for the slots of one transport's requests, counts their decisions, and calls hooks with them.

    If costs are settled, it does not book ahead, so that units that come back are used at once.
    """

    def __init__(self, limiter: Limiter, margin: float, is_settled: bool, hooks: Hooks) -> None:
        store, renewed = limiter.store, limiter.live.renewed
        self.waiter = SlotWaiter(store, margin=margin, renewed=renewed)
        self.now_us = self.waiter.now_us
        self.pauses = Pauses(store, limiter.name, self.now_us)
        self.slowdown = Slowdown()
        self.spends = SpendWaiter(store, renewed=renewed) if is_settled else None
        self._limiter, self._store = limiter, store
        self._hooks, self._has_hooks = hooks, bool(hooks)
        hooks.watch(store)

    def begin(self, paced: PacedRequest) -> float:
        """Set the deadline of a request, and return the time now."""
        if self._has_hooks:
            self.begin_wait(paced)
        now_us = self.now_us()
        if paced.max_wait < math.inf:
            paced.deadline_us = now_us + paced.max_wait * SECOND_US
        return now_us

    def begin_wait(self, paced: PacedRequest) -> None:
        """Let hooks see the wait of a request."""
        paced.wait = self._hooks.waiting(self._limiter.name)

    def end_wait(self, paced: PacedRequest, decision: Decision | None = None) -> None:
        """End the wait of a request that goes or gives up; call hooks with its decision, if there is one."""
        wait, paced.wait = paced.wait, None
        if wait is not None:
            wait.end(decision)

    def take(self, paced: PacedRequest, left: float) -> Take:
        """The take of a request that waits at most ``left`` seconds from now on."""
        charges = paced.charges
        if self.slowdown.keys:
            charges = self.slowdown.slowed(charges, left, self.now_us())
        return self.pauses.take(charges, left)

    def wait(self, paced: PacedRequest, take: Take) -> Flow[Decision]:
        """Wait for a slot; or, if costs are settled, until a take fits."""
        with of_all(take, paced.max_wait):
            if self.spends is None:
                return (yield from self.waiter.wait_for_slot(take))
            decision = yield from self.spends.wait_to_spend(take)
        self.spends.begin(take)
        paced.spent = take
        return decision

    def wait_again(self, paced: PacedRequest) -> Flow[Decision]:
        """Wait for a slot of a request that may already have waited."""
        left = max(paced.deadline_us - self.now_us(), 0.0) / SECOND_US
        return (yield from self.wait(paced, self.take(paced, left)))

    def confirmed(self, paced: PacedRequest, decision: Decision) -> Flow[Decision]:
        """The decision that is used, when its call may leave.

        It is another one if a pause has begun after the slot was booked. To find out, the store is queried when the
        slot has come. Calls that pile up while it stalls must not leave together. So the call departs only afterwards.
        """
        while True:
            try:
                has_left = yield from self._depart_unless_paused(paced, decision)
            except GeneratorExit:
                raise
            except BaseException:
                yield from self._pass_on(paced, decision)
                raise
            if has_left:
                if paced.wait is not None:
                    self.end_wait(paced, without(decision, Condition))
                return decision
            yield from self._give_back(paced, decision)
            decision = yield from self.wait_again(paced)

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
        if self.spends is None:
            yield from self.waiter.pass_on(decision)
        else:
            yield from self._give_back(paced, decision)

    def _give_back(self, paced: PacedRequest, decision: Decision) -> Flow[None]:
        """Give back what was taken for a request that does not go yet."""
        self.end_spending(paced)
        store, nothing = self.waiter.store, [0.0] * len(decision.charges)
        yield GiveBack(store, partial(settle, store, decision, nothing, is_unused=True))

    def end_spending(self, paced: PacedRequest) -> None:
        """Note that nothing that was taken for this request can come back any longer."""
        take, paced.spent = paced.spent, None
        if take is not None and self.spends is not None:
            self.spends.finish(take)

    def wait_for_pause(self, paced: PacedRequest) -> Flow[Decision | None]:
        """Wait as under an override in words: for the end of a pause, but for no slot. The decision is counted.

        ``None`` if the override has ended meanwhile, so that the request needs a slot.
        """
        while (wait_us := (yield from self.pauses.left_us(paced.key))) > 0.0:
            yield from self._sleep_in_time(paced, wait_us)
        word = self._limiter.live.word
        if word is None:
            return None
        self.end_wait(paced)
        paced.is_counted = True
        decision: Decision = yield self._limiter.let_pass(Take(paced.charges), word)
        return decision

    def _sleep_in_time(self, paced: PacedRequest, wait_us: float) -> Flow[None]:
        """Sleep, or give up if that is longer than the request may wait."""
        too_long_us = self.now_us() + wait_us - paced.deadline_us
        if too_long_us > 0.0:
            yield from self.give_up(paced, too_long_us)
        yield from sleep(self.waiter.clock, wait_us)

    def give_up(self, paced: PacedRequest, too_long_us: float, because: str = "") -> Flow[None]:
        """Raise ``PaceTimeout``, which says that the slot is too far away, or that there is no place."""
        take = self.pauses.take(paced.charges, paced.max_wait)
        peeked: Decision = yield CallStore(self.waiter.store, self.waiter.store.peek(take))
        decision = as_refused(peeked, too_long_us)
        if because:
            raise PaceTimeout(f"no place for {paced.key!r}: {because}, max_delay is {paced.max_wait:g} s", decision)
        raise pace_timeout(take, decision)

    def count(self, paced: PacedRequest, decision: Decision) -> None:
        """Count a request that goes."""
        self._limiter.count(decision)
        paced.is_counted = True

    def timed_out(self, paced: PacedRequest, decision: Decision) -> None:
        """Note that a request gives up, or that a limit of the wrapped transport has refused one that has gone."""
        self.end_wait(paced, decision)
        if not paced.is_counted:
            self._limiter.count(decision)
