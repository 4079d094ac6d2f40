"""What one process learns about a route, for all others: numbers in a document, used units, and pauses."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from ....decision import Charge, Decision, Take
from ....errors import StoreError
from ....quotas import SECOND_US, RollingWindow, TokenBucket
from ....stores import settle
from ....stores.documents import Documents
from ....waiting import CallStore, Flow, SlotWaiter
from ...sending.pauses import Pauses
from ..queued_requests import Call, Record, Section
from ..server_buckets import LEAST, ProbedBucket, Rate, ReportedBucket
from .locked_model import LockedModel
from .route_records import decoded, encoded, name_of, record_of
from .shared_quotas import EQUAL, NAME, learned_charge, pause_quota, raised_to, rate_of, used_up

RECORDED_S = 600.0
"""How long the record of a route stays in the store; it is written again after half of that time."""

FILLED_S = 3.0
"""For how many seconds a bucket stays exhausted after it is no longer charged."""


class Publisher:
    """Writes what answers report to the store, and reads what others have written. During an outage, it does nothing.

    ``slots`` waits for slots of the same store.
    """

    def __init__(self, locked: LockedModel, slots: SlotWaiter, documents: Documents) -> None:
        self._locked = locked
        self._now_us = slots.now_us
        self._store = slots.store
        self._documents = documents
        self._pauses = Pauses(slots.store, NAME, slots.now_us)

    def read(self, call: Call) -> Flow[Record | None]:
        """The record of the route of a request."""
        try:
            content: bytes | None = yield CallStore(self._store, self._documents.read(name_of(call)))
        except StoreError:
            return None
        return None if content is None else decoded(content)

    def publish(self, call: Call, paused: Sequence[ProbedBucket]) -> Flow[None]:
        """Write what the answer to a request has changed."""
        with self._locked:
            now_us = self._now_us()
            changes = _agree(call)
            content = self._content(call, bool(changes), now_us)
            pauses = [(bucket.name, bucket.paused_until_us - now_us) for bucket in paused] + _spent(call, now_us)
        for bucket, wait_us in pauses:
            yield from self._pauses.begin(call.host.name, wait_us / SECOND_US, pause_quota(bucket))
        filled: list[Decision | None] = []
        for change in changes:
            filled.append((yield from self._take(change.fills())))  # noqa: PERF401  # a comprehension cannot yield
        if changes and (yield from self._is_known(call)):
            for change, decision in zip(changes, filled):
                if change.old is not None:  # the other process has taken the old charges into account
                    yield from self._settle(decision, 0.0)
            return
        if content is not None:
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, self._documents.write(name_of(call), content, seconds=RECORDED_S))
        for change, decision in zip(changes, filled):
            yield from self._close(change, decision)

    def _is_known(self, call: Call) -> Flow[bool]:
        """Whether another process has written at least as much about a route; its record is then adopted."""
        record = yield from self.read(call)
        if record is None:
            return False
        with self._locked as model:
            known = {limit.name: limit.rate for limit in record.limits}
            if not all(_is_no_less(known.get(bucket.name), bucket.stored.rate) for bucket in call.route.buckets):
                return False
            model.adopt(call, record, self._now_us())
        return True

    def _take(self, take: Take) -> Flow[Decision | None]:
        with contextlib.suppress(StoreError):
            decisions: list[Decision] = yield CallStore(self._store, self._store.take((take,)))
            return decisions[0]
        return None

    def _close(self, change: Change, filled: Decision | None) -> Flow[None]:
        """Fill the old bucket; then keep only as much of the new one used as that shows."""
        if change.old is not None:
            closed = yield from self._take(change.closes(change.old))
            if closed is not None and filled is not None:
                unfilled = change.charge.quota.limit - filled.granted
                yield from self._settle(filled, max(change.used(closed) - unfilled, 0.0))

    def _settle(self, filled: Decision | None, units: float) -> Flow[None]:
        if filled is not None and filled.allowed and units < filled.granted:
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, settle(self._store, filled, [units]))

    def _content(self, call: Call, is_changed: bool, now_us: float) -> bytes | None:
        """The document about the route of a request, if it has to be written."""
        section: Section = call.route.section
        if not call.route.is_known:
            return None
        record = record_of(call)
        age_us = now_us - section.recorded_us
        if not is_changed and age_us < RECORDED_S / 2 * SECOND_US and (record == section.record or age_us < SECOND_US):
            return None
        section.record, section.recorded_us = record, now_us
        return encoded(record)


def _changes(call: Call) -> list[tuple[ReportedBucket, Rate | None]]:
    """The buckets of a route whose charge changes now, because of what answers report."""
    rates = [(bucket, rate_of(bucket)) for bucket in call.route.buckets]
    return [(bucket, rate) for bucket, rate in rates if rate != bucket.stored.rate]


class Change(NamedTuple):
    """A bucket whose requests are charged differently from now on: with ``charge``, and before with ``old``.

    The answer behind this change has left ``reported`` units.
    """

    charge: Charge
    reported: float
    old: Charge | None

    def fills(self) -> Take:
        """A take of the units that may already be used: all of them, if requests of the old charge may be under way."""
        limit = self.charge.quota.limit
        return used_up(self.charge, limit - self.reported) if self.old is None else raised_to(self.charge, limit)

    def closes(self, old: Charge) -> Take:
        """A take of everything that the old charge has, which makes other processes read the document."""
        refilled = FILLED_S / old.quota.period if isinstance(old.quota, TokenBucket) else 0.0
        return raised_to(old, old.quota.limit * (1.0 + refilled))

    def used(self, closed: Decision) -> float:
        """How many units may really be used, according to the earlier charges that ``closes`` has shown.

        If a window was mistaken for units that come back one by one, these are the charges within the length of the
        window. Otherwise, the number is not known.
        """
        quota, old = self.charge.quota, self.old and self.old.quota
        if not isinstance(quota, RollingWindow) or not isinstance(old, TokenBucket):
            return min(quota.most + 1.0, quota.limit)
        refill = old.limit / old.period
        level = closed.states[0].reset_after * refill - closed.granted
        charged = math.floor((level + quota.period * refill) / self.charge.cost + LEAST) * self.charge.cost
        return max(charged, quota.limit - self.reported)


def _agree(call: Call) -> list[Change]:
    """Charge buckets from now on as answers report them."""
    host, changes = call.host.name, []
    for bucket, rate in _changes(call):
        old, bucket.stored.rate = bucket.stored.rate, rate
        if rate is not None and (old is None or old != rate._replace(is_sure=old.is_sure)):
            charge = learned_charge(host, bucket.name, rate, bucket.size.cost)
            before = None if old is None else learned_charge(host, bucket.name, old, bucket.size.cost)
            changes.append(Change(charge, bucket.stored.reported, before))
    return changes


def _is_no_less(known: Rate | None, learned: Rate | None) -> bool:
    """Whether what another process has written about a bucket is at least as certain as what this one has learned."""
    if known is None or learned is None:
        return learned is None
    if known.limit != learned.limit or known.is_sure < learned.is_sure:
        return False
    if not learned.is_sure and (known.is_sure or (known.burst and known.refills and not learned.refills)):
        return True
    has_burst = (known.burst or known.limit) >= (learned.burst or learned.limit)
    return known.refills == learned.refills and has_burst and known.period >= learned.period * (1.0 - EQUAL)


def _spent(call: Call, now_us: float) -> list[tuple[str, float]]:
    """The buckets that an answer has reported as exhausted, and the microseconds until there is more."""
    spent = []
    for bucket in call.route.buckets:
        if bucket.stored.is_spent:
            bucket.stored.is_spent = False
            ready_us = bucket.more_at(now_us)
            if ready_us > now_us:
                spent.append((bucket.name, ready_us - now_us))
    return spent
