"""What one process learns about a route, for all others: numbers in a document, used units, and pauses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ....decision import Decision, Take
from ....errors import StoreError
from ....quotas import SECOND_US
from ....stores import settle
from ....stores.documents import Documents
from ....waiting import CallStore, Flow, SlotWaiter, take_all
from ...sending.pauses import Pauses
from ..queued_requests import Call, Record, Section
from ..server_buckets import ProbedBucket
from .charge_changes import ChargeChange, apply_new_rates, is_no_less
from .locked_model import LockedModel
from .route_records import decoded, encoded, name_of, record_of
from .shared_quotas import NAME, pause_quota

RECORDED_S = 600.0
"""How long the record of a route stays in the store; it is written again after half of that time."""


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
        """Write what the answer to a request has changed; ``charge_changes`` explains the steps."""
        with self._locked:
            now_us = self._now_us()
            changes = apply_new_rates(call)  # step 1
            content = self._content_to_write(call, bool(changes), now_us)
            pauses = [(bucket.name, bucket.paused_until_us - now_us) for bucket in paused] + _pop_spent(call, now_us)
        for bucket, wait_us in pauses:
            yield from self._pauses.begin(call.host.name, wait_us / SECOND_US, pause_quota(bucket))
        filled = yield from self._fill(changes)  # step 2
        if changes and (yield from self._adopt_written(call)):  # step 3
            yield from self._give_back(changes, filled)
            return
        if content is not None:  # step 4
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, self._documents.write(name_of(call), content, seconds=RECORDED_S))
        for change, decision in zip(changes, filled):
            yield from self._close(change, decision)  # steps 5 and 6

    def _fill(self, changes: Sequence[ChargeChange]) -> Flow[list[Decision | None]]:
        """Fill the buckets of the new charges."""
        filled: list[Decision | None] = []
        for change in changes:
            filled.append((yield from self._take(change.fill())))  # noqa: PERF401  # a comprehension cannot yield
        return filled

    def _give_back(self, changes: Sequence[ChargeChange], filled: Sequence[Decision | None]) -> Flow[None]:
        """Give back what the buckets of the new charges were filled with, except for those that were unknown."""
        for change, decision in zip(changes, filled):
            if change.old is not None:
                yield from self._settle(decision, 0.0)

    def _adopt_written(self, call: Call) -> Flow[bool]:
        """Adopt what another process has written about a route, if it is at least as much; return whether it is."""
        record = yield from self.read(call)
        if record is None:
            return False
        with self._locked as model:
            written = {limit.name: limit.rate for limit in record.limits}
            if not all(is_no_less(written.get(bucket.name), bucket.stored.rate) for bucket in call.route.buckets):
                return False
            model.adopt(call, record, self._now_us())
        return True

    def _take(self, take: Take) -> Flow[Decision | None]:
        with contextlib.suppress(StoreError):
            decisions: list[Decision] = yield CallStore(self._store, take_all(self._store, take))
            return decisions[0]
        return None

    def _close(self, change: ChargeChange, filled: Decision | None) -> Flow[None]:
        """Fill the bucket of the old charge, if there is one; then keep as much of the new one used as that shows."""
        closed = None if change.old is None else (yield from self._take(change.close(change.old)))
        if closed is not None and filled is not None:
            unfilled = change.charge.quota.limit - filled.granted
            yield from self._settle(filled, max(change.used(closed) - unfilled, 0.0))

    def _settle(self, filled: Decision | None, units: float) -> Flow[None]:
        if filled is not None and filled.allowed and units < filled.granted:
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, settle(self._store, filled, [units]))

    def _content_to_write(self, call: Call, is_changed: bool, now_us: float) -> bytes | None:
        """The document about the route of a request, if it has to be written; from now on, it counts as written."""
        section: Section = call.route.section
        if not call.route.is_known:
            return None
        record = record_of(call)
        age_us = now_us - section.recorded_us
        if not is_changed and age_us < RECORDED_S / 2 * SECOND_US and (record == section.record or age_us < SECOND_US):
            return None
        section.record, section.recorded_us = record, now_us
        return encoded(record)


def _pop_spent(call: Call, now_us: float) -> list[tuple[str, float]]:
    """The buckets that an answer has newly reported as exhausted, and the microseconds until there is more."""
    spent = []
    for bucket in call.route.buckets:
        if bucket.stored.is_spent:
            bucket.stored.is_spent = False
            ready_us = bucket.more_at(now_us)
            if ready_us > now_us:
                spent.append((bucket.name, ready_us - now_us))
    return spent
