"""What a request needs from the store, and what its answer writes there, for all transports on that store.

A request is one take, at the time at which it is sent: it charges the declared quota, and, if processes share the
store, the buckets that it needs, as answers have reported them, on condition that none of them is paused. The first
request of an unknown route is the pioneer of all processes: it holds a lease, a bucket of one, until it has its answer.
What the answer reports goes into a small document, which the others read.

To enter, a request takes what it needs at a slot that is near (``_decide``). By the answer, no more may ask than will
find something (``_limit_askers``). Then it sleeps (``_sleep_until_slot``), and goes. If it may not, what is refused is
held up (``_hold_up``), and it waits in the model again.

All charges of a host have one key, so a request is one take, and on a cluster one call.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from threading import RLock
from typing import Literal, NamedTuple, TypeAlias

from ...background import reset_now_and_in_child
from ...buckets import as_bytes, digest
from ...clock import SystemClock
from ...decision import Charge, Condition, Decision, OnError, QuotaState, Take, is_outage
from ...errors import RateLimitError, StoreError
from ...quotas import SECOND_US, Quota, RollingWindow, TokenBucket, fitting_parts
from ...stores import reset, settle
from ...waiting.drivers import CallStore, Flow, GiveBack, sleep
from ...waiting.waiter import SlotWaiter, pace_timeout
from ..pauses import PAUSE, Pauses, decision_on
from .learned_buckets import EQUAL, LONGEST_S, Bucket, PioneerBucket, Rate, ReportedBucket
from .model import Call, Host, LearnedLimit, Model, Record, probed

# The name of the limiter whose buckets hold declared quotas, learned buckets and pauses.
NAME = "adaptive"

# For how many seconds the pioneer of one process holds up the others. If it is dead by then, another one goes.
SHARED_LEASE_S = 3.0

# Any slot that is no further away, in seconds, is booked, so that processes far from the store ask in time.
SHORT_S = 0.05

# So much further away at most, for a request that was refused again and again: until then, nobody has the declared
# quota that it has booked.
MOST_FURTHER_S = 0.25

# The furthest slot that is booked of the declared quota, or else of a bucket whose units come back one by one.
AHEAD_S = 5.0

# Where others book as well, the queue of a bucket is as long as before the last slot, or longer by this part of a unit.
# No slot further ahead is asked for at once: one that the queue does not fill would keep the quota unused until then.
LONGER = 0.1

# As many units as come back in so many seconds are asked for at a time, so that the way to the store costs none.
ASKED_S = 0.01

# How soon a request checks again whether the pioneer of another process has its answer; each check doubles the
# time.
FIRST_POLL_US, LONGEST_POLL_US = 20_000.0, 250_000.0

# How long, and how often, a request waits for this process to publish a new rate, which may fail.
PUBLISHING_US, MOST_POLLS = 5_000.0, 10

# How often a process looks again at an exhausted bucket, because its charge may have changed.
LOOK_EVERY_US = 1 * SECOND_US

# How long the record of a route stays in the store; it is written again after half of that time.
RECORDED_S = 600.0

# By how much windows are longer here than at the server, because requests may overtake earlier ones on their way.
MARGIN, LONGEST_MARGIN_S = 0.02, 0.05

# The most parts of the rolling window that stands for a window of a server.
PARTS = 60

# The most learned buckets that a take charges, those with the least left; more are too many for one take.
MOST_LIMITS = 4

FORMAT = 6
CACHED = 4096


class Need(NamedTuple):
    """A charge or a condition of a take, and the bucket of the model that it is about."""

    charge: Charge
    bucket: Bucket
    purpose: Literal["quota", "pioneer", "units", "pause"]


# Needs, and what the store has answered to each of them.
Answers: TypeAlias = Sequence[tuple[Need, QuotaState]]


class Taken(NamedTuple):
    """A take for a request, and the needs that it covers."""

    needs: Sequence[Need]
    decision: Decision


class LockedModel:
    """A model that one thread at a time uses: ``with locked as model``. After a fork, the child starts afresh."""

    def __init__(self, new: Callable[[], Model]) -> None:
        self._new = new
        reset_now_and_in_child(self)

    def reset(self) -> None:
        """Forget everything that was learned, and all requests."""
        self._lock = RLock()  # the garbage collector may call the model in here, by closing a forgotten request
        self._model = self._new()

    def __enter__(self) -> Model:
        self._lock.acquire()
        return self._model

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Admission:
    """Lets admitted requests wait for what only the store knows, and writes what their answers report."""

    def __init__(self, locked: LockedModel, slots: SlotWaiter, quotas: Sequence[Quota]) -> None:
        self._locked = locked
        self._slots = slots
        self._store = slots.store
        self._now_us = slots.now_us
        # The time of day, by which processes tell each other when a window ends.
        self._clock = slots.clock or SystemClock()
        self._quotas = quotas
        self._on_error: OnError | None = None if self._quotas else "local"
        self._pauses = Pauses(slots.store, NAME, slots.now_us)
        self._documents = None if slots.store.in_process else slots.store.documents

    def least_wait_us(self, call: Call, ahead: int) -> float:
        """How long a request with so many others before it waits for the declared quota at least."""
        quotas = self._quotas if call.route.quota else ()
        return max([0.0, *[(ahead - quota.most) * quota.period_us / quota.limit for quota in quotas]])

    def enter(self, call: Call) -> Flow[bool]:
        """Whether an admitted request is sent now; if not, it waits in the model again."""
        needs = [*self._charges_of(call), *self._pauses_of(call)]
        if needs and not (yield from self._take(call, needs)):
            return False
        with self._locked as model:
            if model.sends(call, self._now_us()):
                return True
        yield from self.leave(call)
        return False

    def leave(self, call: Call) -> Flow[None]:
        """Give back what was taken for a request that is not sent."""
        taken, call.taken = call.taken, None
        if taken is not None:
            costs = [0.0] * len(taken.needs)
            yield GiveBack(self._store, partial(settle, self._store, taken.decision, costs, is_unused=True))

    def died(self, call: Call, *ended: str) -> Flow[None]:
        """Note that a request has ended: if it was a pioneer, its lease ends, as do other charges of these kinds."""
        taken, call.taken = call.taken, None
        if taken is not None and any(need.purpose in ("pioneer", *ended) for need in taken.needs):
            costs = [0.0 if need.purpose in ("pioneer", *ended) else need.charge.cost for need in taken.needs]
            yield GiveBack(self._store, partial(settle, self._store, taken.decision, costs))

    def answered(self, call: Call, paused: Sequence[PioneerBucket]) -> Flow[None]:
        """Share what an answer has reported with other processes; after the answer to a pioneer, they may go."""
        host, now_us = call.host.name, self._now_us()
        for bucket in paused:
            yield from self._pauses.begin(host, bucket.paused_us(now_us) / SECOND_US, _pause_quota(bucket.name))
        if self._documents is not None:
            with contextlib.suppress(StoreError):  # during an outage, nothing is shared
                yield from self._publish(call, paused)
        # A refused request has used nothing of a window. What it took of units that come back one by one stays taken,
        # so that fewer go where others use a part.
        yield from self.died(call, *["units" for each in paused if each.rate and not each.rate.refills])

    def _charges_of(self, call: Call) -> Iterator[Need]:
        host = call.host
        for bucket in call.route.quota:
            for quota in self._quotas:
                yield Need(Charge(quota, host.name, 1, NAME), bucket, "quota")
        buckets = [bucket for bucket, _ in probed(call)]
        if self._documents is not None:  # for a hidden limit, each process searches by itself
            reported = [bucket for bucket in buckets if isinstance(bucket, ReportedBucket)]
            for each in sorted(reported, key=lambda each: each.available / max(each.limit, 1.0))[:MOST_LIMITS]:
                rate = each.charged or each.rate
                if rate is not None and each.cost > 0.0 and not each.is_unknown:
                    yield Need(learned_charge(host.name, each.name, rate, each.cost), each, "units")
            for bucket in buckets:
                if bucket.is_unknown:
                    yield Need(_pioneer_charge(host.name, bucket.name), bucket, "pioneer")

    def _pauses_of(self, call: Call) -> Iterator[Need]:
        host = call.host.name
        if not self._store.in_process or self._pauses.left_here_us(host) > 0.0:
            for bucket, _ in probed(call):
                yield Need(Condition(_pause_quota(bucket.name), host, 0, NAME), bucket, "pause")

    def _take(self, call: Call, needs: Sequence[Need]) -> Flow[bool]:
        """Whether the store has room for a request, now or soon; if not, it waits in the model again."""
        # The rest of a window is being published, unless that has failed; others may know another one.
        units = [need.bucket for need in needs if need.purpose == "units" and call.polls < MOST_POLLS]
        unshared = [bucket for bucket in units if bucket.is_part and bucket.charged is None]
        is_pioneer = any(need.purpose == "pioneer" for need in needs)
        if unshared or (is_pioneer and (yield from self._read(call))):
            with self._locked as model:
                for bucket in unshared:
                    bucket.held_until_us = self._now_us() + PUBLISHING_US
                call.polls += len(unshared)
                model.again(call, self._now_us())
            return False
        decision = yield from self._decide(call, needs)
        answers: Answers = list(zip(needs, decision.states))
        with self._locked:
            self._limit_askers(answers)
        if decision.allowed:
            call.taken = Taken(needs, decision)
            answers = (yield from self._sleep_until_slot(call, call.taken)) if decision.delay > 0.0 else ()
        if not answers:
            with self._locked as model:  # a pause may have begun, and who does not leave is not counted
                is_held_up = model.is_held_up(call, self._now_us())
            declared = [need.charge for need in needs if need.purpose == "quota" and not is_held_up]
            if declared:
                yield from self._slots.depart(decision, *declared)
            return True
        with self._locked as model:
            must_read = self._hold_up(call, answers)
            model.again(call, self._now_us())
        yield from self.leave(call)
        if must_read:
            yield from self._read(call)
        return False

    def _sleep_until_slot(self, call: Call, taken: Taken) -> Flow[Answers]:
        """Sleep until the slot of a request; return its pauses if one of them has begun by then: it may not go."""
        yield from sleep(self._slots.clock, taken.decision.delay * SECOND_US)
        pauses = list(self._pauses_of(call))
        paused = yield from self._begun(pauses)
        # Given back, its slot would be one at the end of the queue, each time that others are refused just before it.
        # It is kept while no other unit comes back, so one request at most goes late. That of a declared quota is given
        # back: late by so much, it would exceed the quota.
        quotas = [need.charge.quota for need in taken.needs if self._is_booked(need)]
        unit_us = max([quota.period_us / quota.limit for quota in quotas], default=0.0)
        rest_us = 0.0 if self._quotas else max([state.retry_after for _, state in paused], default=0.0) * SECOND_US
        if 0.0 < rest_us <= min(unit_us, AHEAD_S * SECOND_US, call.deadline_us - self._now_us()):
            yield from sleep(self._slots.clock, rest_us)
            paused = yield from self._begun(pauses)
        return paused

    def _decide(self, call: Call, needs: Sequence[Need]) -> Flow[Decision]:
        """Take what a request needs, at a slot that is near.

        A slot that is further away is booked only of the declared quota, or, without one, of buckets whose units come
        back one by one: a booked slot must not keep others of the same host from what they need.
        """
        now_us, charges = self._now_us(), tuple([need.charge for need in needs])
        left_s = max(call.deadline_us - now_us, 0.0) / SECOND_US
        short_s = SHORT_S + call.further_s
        booked = {need.bucket for need in needs if self._is_booked(need)}
        ahead_s = max([bucket.booked_until_us - now_us for bucket in booked], default=0.0) / SECOND_US
        is_all = all(need.purpose == "pause" or self._is_booked(need) for need in needs)
        is_pioneer = any(need.purpose == "pioneer" for need in needs)
        queue_s = 0.0 if is_pioneer else max([bucket.queue_s for bucket in booked], default=0.0)
        wait_s = AHEAD_S if is_all and ahead_s > 0.0 else min(max(ahead_s + short_s, short_s, queue_s), AHEAD_S)
        while True:
            take = Take(charges, min(wait_s, left_s), on_error=self._on_error)
            decision = yield from self._slots.try_take(take)
            if decision.allowed:
                return decision
            if is_outage(decision):
                raise pace_timeout(take, decision)
            refusing = {need.bucket for need, state in zip(needs, decision.states) if not state.allowed}
            if wait_s >= min(AHEAD_S, left_s) or not refusing <= booked:
                return decision
            wait_s = AHEAD_S if is_all else min(wait_s + decision.retry_after + SHORT_S, AHEAD_S)

    def _is_booked(self, need: Need) -> bool:
        """Whether slots of a bucket are booked for more than a moment."""
        if self._quotas:
            return need.purpose == "quota"
        return need.purpose == "units" and isinstance(need.charge.quota, TokenBucket)

    def _begun(self, pauses: Sequence[Need]) -> Flow[Answers]:
        """Pauses, and their states, if one of them has begun."""
        if pauses:
            with contextlib.suppress(StoreError):
                conditions = Take(tuple([need.charge for need in pauses]))
                peeked: Decision = yield CallStore(self._store, self._store.peek(conditions))
                return () if peeked.allowed else list(zip(pauses, peeked.states))
        return ()

    def _limit_askers(self, answers: Answers) -> None:
        """Tell buckets what the store has left of them: how many may ask at a time, and until when slots are booked."""
        charged = [each for each in answers if each[0].purpose in ("quota", "units")]
        for need, _ in charged:
            need.bucket.asking, need.bucket.booked_until_us, need.bucket.queue_s = math.inf, 0.0, 0.0
        for (charge, bucket, _), state in charged:
            left = state.remaining if state.allowed else 0
            refill = charge.quota.limit / charge.quota.period if isinstance(charge.quota, TokenBucket) else 0.0
            bucket.asking = min(bucket.asking, max((left + refill * ASKED_S) // charge.cost, 1.0))
            if left < 1:
                own_us = (1.0 - LONGER) * charge.cost * charge.quota.period_us / charge.quota.limit
                bucket.queue_s = max(bucket.queue_s, state.more_after - own_us / SECOND_US)
                bucket.booked_until_us = max(bucket.booked_until_us, self._now_us() + state.more_after * SECOND_US)

    def _hold_up(self, call: Call, answers: Answers) -> bool:
        """Hold up the buckets that the store has refused; return whether others may have learned more about them.

        A pioneer's bucket that others have paused starts afresh.
        """
        now_us, must_read = self._now_us(), False
        for (_, bucket, purpose), state in [each for each in answers if not each[1].allowed]:
            wait_us: float = math.ceil(min(state.retry_after, LONGEST_S) * SECOND_US)
            is_late = now_us - call.route.section.read_us > LOOK_EVERY_US
            must_read |= purpose == "pause" or (purpose == "units" and is_late)
            if purpose == "pause" and isinstance(bucket, PioneerBucket) and not isinstance(bucket, ReportedBucket):
                bucket.pause(now_us + wait_us)
                continue
            if purpose == "pioneer":
                wait_us = min(wait_us, FIRST_POLL_US * 2.0**call.polls, LONGEST_POLL_US)
                call.polls = min(call.polls + 1, 10)
            elif purpose == "units":
                wait_us = min(wait_us, LOOK_EVERY_US)
                if self._quotas:  # else it is booked; each refusal makes its turn more likely
                    call.further_s = min(call.further_s + SHORT_S, MOST_FURTHER_S)
                    wait_us = max(wait_us - SHORT_S * SECOND_US, wait_us / 2.0)
            bucket.held_until_us = now_us + wait_us
        return must_read

    def _read(self, call: Call) -> Flow[bool]:
        """Whether another process has learned more about a request's route; then that is adopted.

        Other routes may use the same buckets, so each bucket has a document of its own, which is newer.
        """
        host, route, section = call.host, call.route, call.route.section
        section.read_us = self._now_us()
        with contextlib.suppress(StoreError):
            written = yield from self._record(host, section.name)
            shared, newer = _limits(route.buckets), []
            record = written or Record(host.profile.name, shared)
            for limit in record.limits:
                of_bucket = yield from self._record(host, f"bucket {limit.name}")
                newer.append(of_bucket.limits[0] if of_bucket and of_bucket.limits else limit)
            record, time_us = Record(record.profile, tuple(newer)), self._clock.now_us()
            is_new = record != section.record and (written is not None or record.limits != shared)
            if is_new and not any(limit.rate and 0.0 < limit.rate.until * SECOND_US <= time_us for limit in newer):
                with self._locked as model:
                    now_us = self._now_us()
                    model.adopt(call, record, now_us, time_us - now_us)
                if written is None:  # nobody knows yet that this section uses these buckets
                    section.recorded_us = -math.inf
                return True
        return False

    def _record(self, host: Host, name: str) -> Flow[Record | None]:
        """The record about a section or a bucket, if there is one."""
        if self._documents is None:
            return None
        content: bytes | None = yield CallStore(self._store, self._documents.read(_document(host, name)))
        return decoded(content or b"")

    def _publish(self, call: Call, paused: Sequence[PioneerBucket]) -> Flow[None]:
        """Write what the answer to a request has shown; a window of which nothing is left pauses its bucket."""
        host, buckets = call.host.name, call.route.buckets
        if _changed(buckets):  # another process may have learned more
            yield from self._read(call)
        changed = _changed(buckets)
        for bucket in changed:
            try:
                yield from self._change(host, bucket)
            finally:
                bucket.charged = bucket.shared_rate
        for bucket in buckets:
            bucket.charged = bucket.charged or bucket.shared_rate
        yield from self._write(call, changed)
        with self._locked:
            now_us = self._now_us()
            spent = [bucket for bucket in buckets if _is_newly_spent(bucket, now_us)]
        for bucket in spent:
            until_s = (bucket.spent_until_us - now_us) / SECOND_US
            yield from self._pauses.begin(host, until_s, _pause_quota(bucket.name))
            if bucket.rate is not None and bucket.has_windows:
                charge = learned_charge(host, bucket.name, bucket.rate, bucket.cost)
                peeked: Decision = yield CallStore(self._store, self._store.peek(Take((charge,))))
                # In a rolling log, nothing comes back before the oldest request expires, and then only a part.
                if bucket.is_part or until_s < peeked.states[0].more_after - bucket.rate.period * EQUAL:
                    yield CallStore(self._store, reset(self._store, [charge]))
        for bucket in buckets:  # others use one that has refused, too: what the store has left of it is gone
            if bucket in paused and bucket.rate is not None and bucket.rate.refills and bucket.reported < bucket.least:
                yield from self._fill(host, bucket, bucket.rate, bucket.rate.limit)

    def _change(self, host: str, bucket: ReportedBucket) -> Flow[None]:
        """Charge a bucket by another rate from now on.

        A window is another bucket of the store than one of another length, or units that come back one by one. It knows
        of no request yet. So the old one is filled: processes that still charge it are refused, and read of the new
        one. What was used is taken from that.
        """
        old, rate, used = bucket.shared_rate, bucket.rate, bucket.burst - bucket.reported
        if rate is not None and bucket.is_part and not rate.until:
            now_us = self._now_us()
            rate = rate._replace(until=(self._clock.now_us() + bucket.more_at(now_us) - now_us) / SECOND_US)
        bucket.rate = bucket.shared_rate = rate
        is_same = old is not None and rate is not None and old[1:3] == rate[1:3]  # the same bucket of the store
        if rate is None or (is_same and bucket.charged) or (old is not None and old.refills and rate.refills):
            return
        if old is not None and not is_same:
            left = yield from self._fill(host, bucket, old, old.limit)
            used = used if bucket.charged is None else max(used, old.limit - left)  # what was used of this window
        # What the last answers about a window have used counts no longer when a pioneer begins the next one.
        if bucket.is_probed and bucket.reported < bucket.least:
            return
        if not (yield from self._fill(host, bucket, rate, used, LONGEST_MARGIN_S + SHORT_S)):
            yield from self._fill(host, bucket, rate, used)

    def _fill(self, host: str, bucket: ReportedBucket, rate: Rate, units: float, wait_s: float = 0.0) -> Flow[float]:
        """Take so many units of a bucket, at a slot that is near, or else what is left of it; return how many that is.

        The window of the store ends later than that of the server. So the units of a pioneer, which has just begun the
        next one, may fit only in a moment: with none of them, one request too many would go.
        """
        if units < 1.0:
            return 0.0
        charge = replace(learned_charge(host, bucket.name, rate, bucket.cost), cost=units)
        take = Take((charge,), wait_s, best_effort=not wait_s, on_error="allow")
        decision: Decision = yield CallStore(self._store, decision_on(self._store, take))
        return decision.granted

    def _write(self, call: Call, changed: Sequence[ReportedBucket]) -> Flow[None]:
        """Write what is known about a route and its changed buckets, or all, if it is old, or new after a second."""
        host, route, section, now_us = call.host, call.route, call.route.section, self._now_us()
        record = Record(host.profile.name, _limits(route.buckets))
        age_s = (now_us - section.recorded_us) / SECOND_US
        if route.is_known and (changed or age_s >= (1.0 if record != section.record else RECORDED_S / 2)):
            section.record, section.recorded_us = record, now_us
            written = {section.name: record}
            for limit in _limits(route.buckets if age_s >= RECORDED_S / 2 else changed):
                written[f"bucket {limit.name}"] = Record(record.profile, (limit,))
            assert self._documents is not None
            for name, each in written.items():
                content = json.dumps([FORMAT, *each]).encode()
                yield CallStore(self._store, self._documents.write(_document(host, name), content, seconds=RECORDED_S))


def _changed(buckets: Sequence[ReportedBucket]) -> list[ReportedBucket]:
    """The buckets whose rate other processes do not know."""
    return [bucket for bucket in buckets if bucket.rate is not None and bucket.rate != bucket.shared_rate]


def _is_newly_spent(bucket: ReportedBucket, now_us: float) -> bool:
    """Whether an answer has shown that nothing is left of a window; its end is noted."""
    more_us, known_us = bucket.more_at(now_us), max(now_us, bucket.spent_until_us + SHORT_S * SECOND_US)
    if bucket.refill or bucket.reported >= bucket.least or more_us <= known_us:
        return False
    bucket.spent_until_us = more_us
    return True


@lru_cache(maxsize=CACHED)
def learned_charge(host: str, bucket: str, rate: Rate, cost: float) -> Charge:
    """The charge of a request to a learned bucket.

    A window of a server begins at any time, so a rolling window stands for it, which is a little longer. If units come
    back one by one, one of them is left unused, so that requests that overtake others on their way are not refused.
    """
    limit, period, refills, *_ = rate
    name = f"learned-{_hash(bucket)}"
    if refills:
        quota: Quota = TokenBucket(limit, period, max(limit - 1.0, 1.0), name=name)
    else:
        longer = round(period + min(MARGIN * period, LONGEST_MARGIN_S), 6)
        quota = RollingWindow(limit, longer, fitting_parts(longer, PARTS), name)
    return Charge(quota, host, min(cost, quota.most), NAME)


def _pioneer_charge(host: str, bucket: str) -> Charge:
    """The charge of a pioneer, which it gives back when it has its answer. If the pioneer dies, the charge drains."""
    return Charge(TokenBucket(1, SHARED_LEASE_S, 1, name=f"pioneer-{_hash(bucket)}"), host, 1, NAME)


@lru_cache(maxsize=CACHED)
def _pause_quota(bucket: str) -> TokenBucket:
    """The quota of a bucket's pauses; see ``Pauses``."""
    return replace(PAUSE, name=f"pause-{_hash(bucket)}")


def _hash(bucket: str) -> str:
    return digest(as_bytes(bucket))[:16]


def _document(host: Host, name: str) -> str:
    """The name of the document about a section of a host, which is one route or all that begin alike, or a bucket."""
    return f"adaptive {host.name[:64]} {digest(as_bytes(f'{host.name} {name}'))}"


def _limits(buckets: Sequence[ReportedBucket]) -> tuple[LearnedLimit, ...]:
    return tuple([LearnedLimit(each.name, each.limit, each.cost, each.shared_rate) for each in buckets])


def decoded(content: bytes) -> Record | None:
    """The record in a document; ``None`` for one of another version, or for anything that no process has written."""
    try:
        number, profile, limits = json.loads(content)
        if number != FORMAT:
            return None
        return Record(str(profile), tuple([_read(*each) for each in limits]))
    except (ValueError, TypeError, ArithmeticError, RecursionError, RateLimitError):
        return None


def _read(name: str, limit: float, cost: float, rate: Sequence[float] | None) -> LearnedLimit:
    known = None
    if rate is not None:
        most, period, refills, measured, until = rate
        known = Rate(float(most), float(period), bool(refills), float(measured), float(until))
        learned_charge("", name, known, float(cost))  # raises for numbers that cannot be
        if not (1.0 <= limit < math.inf and 0.0 <= known.measured <= limit and 0.0 <= known.until < math.inf):
            raise ValueError("a limit that is charged is a number of units, and measured by no more than that")
    if not (limit >= 0.0 and 0.0 <= cost < math.inf):  # true for NaN, too
        raise ValueError("a limit and a cost are numbers from 0 up")
    return LearnedLimit(str(name), float(limit), float(cost), known)
