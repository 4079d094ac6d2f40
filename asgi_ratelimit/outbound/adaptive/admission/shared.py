"""Admission over a store that processes share: what is left of a learned bucket is used by all of them together.

Each request is one take of the store: it charges the buckets that it needs as an answer has reported them, under the
conditions that none of them is paused. The first request of an unknown route is the pioneer of all processes: it holds
a lease in the store until it has its answer. What that reports travels as a small document, which the others read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from ....decision import Decision, OnError, QuotaState, Take
from ....errors import StoreError
from ....limiter import Limiter
from ....quotas import SECOND_US
from ....stores import settle
from ....waiting import CallStore, Flow, GiveBack, PaceTimeout, SlotWaiter, pace_timeout
from ....waiting.drivers import TaskOrThread
from ..bucket import Bucket
from ..calls import Call
from ..locked_model import LockedModel
from .needs import Need, is_gate, needs_of
from .publishing import Publisher

SLACK_S = 0.05
"""How much further ahead than before a declared quota may be booked, in seconds, because others book meanwhile."""

FIRST_POLL_US, LONGEST_POLL_US = 20_000.0, 250_000.0
"""How soon a request looks again whether the pioneer of another process has its answer; each look doubles the time."""

READ_EVERY_US = 1 * SECOND_US
"""How often a process looks at most whether a bucket of which nothing is left is charged otherwise by now."""

LONGEST_HOLD_US = 60 * SECOND_US
"""After this time at the latest, a request looks again at a bucket that the store has refused."""


class SharedAdmission:
    """Charges requests in the store, and lets other processes know what answers report."""

    def __init__(self, locked: LockedModel, slots: SlotWaiter, limiter: Limiter | None, publisher: Publisher) -> None:
        self._locked = locked
        self._slots = slots
        self._store = slots.store
        self._quotas = () if limiter is None else limiter.quotas
        self._on_error: OnError | None = None if self._quotas else "local"
        self._publisher = publisher
        self._ahead_s: dict[str, float] = {}
        """How far ahead the declared quota of a host is booked."""

    def enter(self, call: Call) -> Flow[bool]:
        """Whether an admitted request is sent now; if not, it waits in the model once more."""
        needs = needs_of(call, self._quotas)
        is_unknown = any(need.purpose == "pioneer" for need in needs) and not call.route.is_known
        decision = yield from self._decide(call, needs)
        if not decision.allowed:
            self._wait_again(call, needs, decision.states)
            if is_unknown or self._may_have_changed(call, needs, decision):
                yield from self._read(call, decision)
            return False
        call.taken = needs, decision
        if (yield from self._is_paused(call, needs, decision)) or (
            is_unknown and (yield from self._read(call, decision))
        ):
            yield from self.leave(call)
            with self._locked as model:
                model.again(call, self._slots.now_us())
            return False
        with self._locked as model:
            if model.sends(call, self._slots.now_us()):
                return True
        yield from self.leave(call)
        return False

    def leave(self, call: Call) -> Flow[None]:
        """A request is not sent: give back what was taken for it."""
        if call.taken is not None:
            (_, decision), call.taken = call.taken, None
            costs = [0.0] * len(decision.states)
            yield GiveBack(self._store, settle(self._store, decision, costs, is_unused=decision.delay == 0.0))

    def answered(self, call: Call, paused: tuple[Bucket, ...]) -> Flow[None]:
        """Let other processes know what an answer has reported; if it is that of a pioneer, they may go."""
        yield from self._publisher.publish(call, paused)
        yield from self.died(call)

    def died(self, call: Call) -> Flow[None]:
        """A request has ended: if it was a pioneer, its lease ends."""
        taken, call.taken = call.taken, None
        if taken is not None:
            needs, decision = taken
            costs = [0.0 if need.purpose == "pioneer" else need.charge.cost for need in needs]
            if 0.0 in [cost for need, cost in zip(needs, costs) if need.purpose != "pause"]:
                yield GiveBack(self._store, settle(self._store, decision, costs))

    def _decide(self, call: Call, needs: Sequence[Need]) -> Flow[Decision]:
        """Take what a request needs, booked ahead only as far as the declared quota is by others."""
        charges, host = tuple([need.charge for need in needs]), call.host.name
        may_settle = any(need.purpose == "pioneer" for need in needs)
        ahead_s = self._ahead_s.get(host, 0.0)
        while True:
            left_s = max(call.deadline_us - self._slots.now_us(), 0.0) / SECOND_US
            take = Take(charges, min(ahead_s, left_s), on_error=self._on_error, may_settle=may_settle)
            decision = yield from self._take(take)
            if decision.allowed:
                self._ahead_s[host] = decision.delay + SLACK_S if decision.delay else 0.0
                return decision
            if not all(state.allowed for need, state in zip(needs, decision.states) if need.purpose != "quota"):
                return decision
            wait_s = take.max_wait + decision.retry_after
            if decision.degraded or wait_s > left_s:
                raise pace_timeout(take, decision)
            ahead_s = wait_s + SLACK_S

    def _take(self, take: Take) -> Flow[Decision]:
        """The decision on a take, when its slot has come."""
        if take.max_wait == 0.0:
            return (yield from self._slots.try_take(take))
        try:
            decision: Decision = yield TaskOrThread(
                partial(self._slots.acquire, take), partial(self._slots.acquire_in_thread, take)
            )
        except PaceTimeout as error:
            return error.decision
        return decision

    def _is_paused(self, call: Call, needs: Sequence[Need], decision: Decision) -> Flow[bool]:
        """Whether another process has begun a pause while a request waited for its slot."""
        if decision.delay == 0.0:
            return False
        pauses = [need for need in needs if need.purpose == "pause"]
        take = Take(tuple([need.charge for need in pauses]))
        try:
            peeked: Decision = yield CallStore(self._store, self._store.peek(take))
        except StoreError:
            return False
        self._hold(call, pauses, peeked.states)
        return not peeked.allowed

    def _wait_again(self, call: Call, needs: Sequence[Need], states: Sequence[QuotaState]) -> None:
        """Let a request wait for what the store has refused."""
        with self._locked as model:
            self._hold(call, needs, states)
            model.again(call, self._slots.now_us())

    def _hold(self, call: Call, needs: Sequence[Need], states: Sequence[QuotaState]) -> None:
        """Hold up the buckets that the store has refused. A gate that another process has paused begins anew."""
        with self._locked:
            now_us = self._slots.now_us()
            for need, state in zip(needs, states):
                if state.allowed or need.bucket is None:
                    continue
                wait_us = min(math.ceil(state.retry_after * SECOND_US), LONGEST_HOLD_US)
                if need.purpose == "pioneer":
                    wait_us = min(wait_us, FIRST_POLL_US * 2.0**call.polls, LONGEST_POLL_US)
                    call.polls = min(call.polls + 1, 10)
                if need.purpose == "pause" and is_gate(call, need.bucket):
                    need.bucket.pause(now_us + wait_us)
                else:
                    need.bucket.hold(now_us + wait_us)

    def _may_have_changed(self, call: Call, needs: Sequence[Need], decision: Decision) -> bool:
        """Whether another process may charge a bucket otherwise by now, because nothing is left of it here."""
        is_refused = any(not state.allowed for need, state in zip(needs, decision.states) if need.purpose == "units")
        return is_refused and self._slots.now_us() - call.route.section.read_us > READ_EVERY_US

    def _read(self, call: Call, decision: Decision) -> Flow[bool]:
        """Whether another process has learned the limits of a request's route; then they are adopted."""
        call.route.section.read_us = self._slots.now_us()
        record = None if decision.degraded else (yield from self._publisher.read(call))
        if record is None:
            return False
        with self._locked as model:
            model.adopt(call, record, self._slots.now_us())
        return True
