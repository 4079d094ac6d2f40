"""Admission over a store that processes share: all of them together use what is left of a learned bucket.

Each request is a take of the store: it charges the buckets that it needs, as an answer has reported them, on condition
that none of them is paused. The first request of an unknown route is the pioneer of all processes: it holds a lease in
the store until it has its answer. What the answer reports goes into a small document, which the others read.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ....decision import Decision, OnError, QuotaState, Take
from ....errors import StoreError
from ....limiter import Limiter
from ....quotas import SECOND_US
from ....stores import reset, settle
from ....waiting import CallStore, Flow, GiveBack, SlotWaiter, sleep
from ..queued_requests import Call
from ..server_buckets import PioneerBucket, ProbedBucket, Rate, ReportedBucket
from .locked_model import LockedModel
from .request_needs import Need, needs_of, units_of
from .route_publisher import Publisher
from .shared_quotas import LONG_WINDOW_S, renewal_charge

FIRST_POLL_US, LONGEST_POLL_US = 20_000.0, 250_000.0
"""How soon a request checks again whether the pioneer of another process has its answer; each check doubles the
time."""

LONGEST_S = 86_400.0
"""The longest time, in seconds, for which the store holds up a bucket."""

AHEAD_S = 5.0
"""The furthest slot, in seconds, that a request books in the store. One that is further away is not booked."""

LEAST_BURST = 2.0
"""The smallest burst of which slots are booked: a single unit bears no request that comes late."""

LOOK_EVERY_US = 1 * SECOND_US
"""How often a process looks again at an exhausted bucket, because its charge may have changed."""


class Taken(NamedTuple):
    """A take for a request, and the needs that it covers."""

    needs: Sequence[Need]
    decision: Decision


class SharedAdmission:
    """Charges requests in the store, and shares what answers report with other processes."""

    def __init__(self, locked: LockedModel, slots: SlotWaiter, limiter: Limiter | None, publisher: Publisher) -> None:
        self._locked = locked
        self._slots = slots
        self._store = slots.store
        self._quotas = () if limiter is None else limiter.quotas
        self._on_error: OnError | None = None if self._quotas else "local"
        self._publisher = publisher
        self._queued_until_us: dict[str, float] = {}
        """The time until which requests to a host probably wait for the declared quota."""

    def enter(self, call: Call) -> Flow[bool]:
        """Whether an admitted request is sent now; if not, it waits in the model again."""
        needs = needs_of(call, self._quotas)
        quota = [need for need in needs if need.purpose == "quota"]
        if not quota:
            is_in = yield from self._take(call, needs)
        elif any(need.purpose == "pioneer" for need in needs):
            is_in = yield from self._take(call, needs[len(quota) :])
            if is_in:
                yield from self._wait_for_quota(call, quota)
        else:
            is_in = yield from self._take_with_quota(call, needs, quota)
        if not is_in:
            return False
        if quota:
            yield from self._slots.depart([need.charge for need in quota])
        with self._locked as model:
            if model.sends(call, self._slots.now_us()):
                return True
        yield from self.leave(call)
        return False

    def leave(self, call: Call) -> Flow[None]:
        """Give back what was taken for a request that is not sent."""
        taken, call.taken = call.taken, []
        for needs, decision in taken:
            if all(need.purpose == "quota" for need in needs):
                yield from self._slots.pass_on(decision)
            else:
                costs = [0.0] * len(decision.charges)
                yield GiveBack(self._store, partial(settle, self._store, decision, costs, is_unused=True))

    def answered(self, call: Call, paused: Sequence[ProbedBucket]) -> Flow[None]:
        """Share what an answer has reported with other processes; after the answer to a pioneer, they may go."""
        yield from self._publisher.publish(call, paused)
        yield from self.died(call)

    def died(self, call: Call) -> Flow[None]:
        """Note that a request has ended: if it was a pioneer, its lease ends."""
        for needs, decision in call.taken:
            if any(need.purpose == "pioneer" for need in needs):
                costs = [0.0 if need.purpose == "pioneer" else need.charge.cost for need in needs]
                yield GiveBack(self._store, partial(settle, self._store, decision, costs))
        call.taken.clear()

    def _take_with_quota(self, call: Call, needs: Sequence[Need], quota: Sequence[Need]) -> Flow[bool]:
        """``_take`` with the declared quota: in one call if there is room, or else behind those that wait for it."""
        host = call.host.name
        if self._slots.now_us() >= self._queued_until_us.get(host, 0.0):
            decision = yield from self._decide(call, needs)
            if decision.allowed or not all(state.allowed for state in decision.states[len(quota) :]):
                return (yield from self._taken(call, needs, decision))
        yield from self._wait_for_quota(call, quota)
        with self._locked as model:
            now_us = self._slots.now_us()
            is_held = any(bucket.is_held(now_us) for bucket, _ in call.probed())
            if is_held:
                model.again(call, now_us)
        if is_held:
            yield from self.leave(call)
            return False
        return (yield from self._take_again(call))

    def _wait_for_quota(self, call: Call, quota: Sequence[Need]) -> Flow[None]:
        left_s = max(call.deadline_us - self._slots.now_us(), 0.0) / SECOND_US
        decision = yield from self._slots.wait(Take(tuple([need.charge for need in quota]), left_s))
        call.taken.append(Taken(quota, decision))
        self._queued_until_us[call.host.name] = self._slots.now_us() + decision.delay * SECOND_US

    def _take(self, call: Call, needs: Sequence[Need]) -> Flow[bool]:
        """Whether the store has room for a request; if not, it waits in the model again."""
        return (yield from self._taken(call, needs, (yield from self._decide(call, needs))))

    def _take_again(self, call: Call) -> Flow[bool]:
        """``_take`` without the declared quota; it is repeated once if the charge of a bucket has changed."""
        needs = needs_of(call, ())
        decision = yield from self._decide(call, needs)
        if not decision.allowed and self._may_have_changed(call, needs, decision):
            yield from self._read(call, decision)
            changed = needs_of(call, ())
            if changed != needs:
                needs, decision = changed, (yield from self._decide(call, changed))
        return (yield from self._taken(call, needs, decision))

    def _decide(self, call: Call, needs: Sequence[Need]) -> Flow[Decision]:
        """Take what a request needs, now or at a slot that is near, so that all processes get their turns."""
        max_wait = 0.0
        if _are_booked_ahead(needs):
            max_wait = min(AHEAD_S, max(call.deadline_us - self._slots.now_us(), 0.0) / SECOND_US)
        charges = tuple([need.charge for need in needs])
        take = Take(charges, max_wait, on_error=self._on_error)
        return (yield from self._slots.try_take(take))

    def _taken(self, call: Call, needs: Sequence[Need], decision: Decision) -> Flow[bool]:
        """Whether a decision lets a request go, given what the store and other processes know about its buckets."""
        is_unknown = not call.route.is_known and any(need.purpose == "pioneer" for need in needs)
        with self._locked:
            _note_left(needs, decision.states)
        if decision.allowed:
            call.taken.append(Taken(needs, decision))
            if decision.delay > 0.0:
                needs, decision = yield from self._wait_for_slot(needs, decision)
        if decision.allowed and not (is_unknown and (yield from self._read(call, decision))):
            return True
        with self._locked as model:
            self._hold(call, needs, decision.states)
            model.again(call, self._slots.now_us())
        yield from self.leave(call)
        yield from self._renew(call, needs, decision)
        if not decision.allowed and (is_unknown or self._may_have_changed(call, needs, decision)):
            yield from self._read(call, decision)
        return False

    def _wait_for_slot(self, needs: Sequence[Need], decision: Decision) -> Flow[tuple[Sequence[Need], Decision]]:
        """Sleep until a booked slot; return the decision, or the refusal of the pauses that have begun meanwhile."""
        yield from sleep(self._slots.clock, decision.delay * SECOND_US)
        pauses = [need for need in needs if need.purpose == "pause"]
        conditions = Take(tuple([need.charge for need in pauses]))
        with contextlib.suppress(StoreError):
            peeked: Decision = yield CallStore(self._store, self._store.peek(conditions))
            if not peeked.allowed:
                return pauses, peeked
        return needs, decision

    def _renew(self, call: Call, needs: Sequence[Need], decision: Decision) -> Flow[None]:
        """Empty long windows that have ended at the server; the rolling windows that stand for them end later."""
        for need, state in zip(needs, decision.states):
            bucket = need.charged
            if state.allowed or bucket is None or not bucket.stored.has_renewed:
                continue
            bucket.stored.has_renewed, rate = False, bucket.stored.rate
            if rate is not None and not rate.refills and rate.period >= LONG_WINDOW_S:
                lease = Take((renewal_charge(call.host.name, bucket.name, rate),), on_error="local")
                if (yield from self._slots.try_take(lease)).allowed:
                    with contextlib.suppress(StoreError):
                        yield CallStore(self._store, reset(self._store, [need.charge]))

    def _hold(self, call: Call, needs: Sequence[Need], states: Sequence[QuotaState]) -> None:
        """Hold up the buckets that the store has refused. A pioneer's bucket that others have paused starts afresh."""
        now_us = self._slots.now_us()
        for need, state in zip(needs, states):
            bucket = need.bucket
            if state.allowed or bucket is None:
                continue
            wait_us: float = math.ceil(min(state.retry_after, LONGEST_S) * SECOND_US)
            if need.purpose == "pause" and isinstance(bucket, PioneerBucket):
                bucket.pause(now_us + wait_us)
            elif need.purpose == "pause":
                bucket.hold(now_us + wait_us)
            elif need.purpose == "pioneer":
                bucket.hold(now_us + min(wait_us, FIRST_POLL_US * 2.0**call.polls, LONGEST_POLL_US))
                call.polls = min(call.polls + 1, 10)
            elif need.charged and need.charge == units_of(call.host.name, need.charged):  # its charge has not changed
                bucket.hold(now_us + min(wait_us, LOOK_EVERY_US))

    def _may_have_changed(self, call: Call, needs: Sequence[Need], decision: Decision) -> bool:
        """Whether another process may have changed the charge of a bucket, because nothing is left of it here."""
        pairs = zip(needs, decision.states)
        is_refused = any(need.purpose == "units" and not state.allowed for need, state in pairs)
        return is_refused and self._slots.now_us() - call.route.section.read_us > LOOK_EVERY_US

    def _read(self, call: Call, decision: Decision) -> Flow[bool]:
        """Whether another process has learned the limits of a request's route; then they are adopted."""
        call.route.section.read_us = self._slots.now_us()
        record = None if decision.degraded else (yield from self._publisher.read(call))
        if record is None:
            return False
        with self._locked as model:
            model.adopt(call, record, self._slots.now_us())
        return True


def _are_booked_ahead(needs: Sequence[Need]) -> bool:
    """Whether a request needs only units of which it is certain how they come back."""
    purposes = {need.purpose for need in needs}
    rates = [_bookable_rate(need.charged) for need in needs if need.charged is not None]
    is_only_units = "units" in purposes and purposes <= {"units", "pause"}
    return is_only_units and all(rate is not None and rate.is_sure for rate in rates)


def _bookable_rate(bucket: ReportedBucket) -> Rate | None:
    """The rate of a learned bucket, unless its burst is so small that requests wait for answers instead."""
    rate = bucket.stored.rate
    return None if rate is None or 0.0 < rate.burst < LEAST_BURST else rate


def _note_left(needs: Sequence[Need], states: Sequence[QuotaState]) -> None:
    """Tell learned buckets what the store has left of them, if slots of them can be booked."""
    for need, state in zip(needs, states):
        bucket = need.charged
        if bucket is not None:
            left = state.remaining if state.allowed else 0.0
            bucket.stored.left = math.inf if _bookable_rate(bucket) is None else left
