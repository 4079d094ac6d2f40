"""How a caller of ``spend`` waits: without booking ahead, so that units that others give back are used at once.

The callers of one set of buckets are served in the order in which they come. The first one takes its estimate as soon
as it fits: it tries again when its refusal ends, when a settlement of this process touches one of its buckets, and at
least once a second, because other processes settle too. If others still take the units a second after it should have
been served, it books its slot. The others sleep until they are first.

Over a store that processes share, the first caller of each process asks at a random time shortly before its units are
there, and books them so far ahead. Otherwise, the process that is nearest to the store would get them every time.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from random import random

from ..decision import Decision, Take, is_outage
from ..quotas import SECOND_US
from ..stores import Store
from ..waiting import CallStore, Flow, PaceTimeout, Renewed, SlotWaiter, as_refused, of_all, pace_timeout, unchanged
from ..waiting.flow_drivers import NewWakeUp, Sleep, sleep
from ..waiting.queue_registry import waiters_of
from ..waiting.slots.slot import slot_of
from ..waiting.wakeups import WakeUp

LONGEST_SLEEP_US = 1_000_000.0
"""The longest sleep of the first caller: another process may have settled."""

LEAD_US = 10_000.0
"""How long before its units are there a caller asks a store that processes share, at most."""

MOMENT = 1e-6
"""The ``max_wait`` of a cost above the burst, which only a take that may wait can charge, to an empty bucket."""


class SpendWaiter:
    """Waits until takes over one store fit, in the order of all callers of this process.

    With ``departs_later``, the caller waits for the departure itself. ``renewed`` returns a take under the quotas that
    now apply. Both are as in ``SlotWaiter``.
    """

    def __init__(self, store: Store, *, departs_later: bool = False, renewed: Renewed = unchanged) -> None:
        self._slots = SlotWaiter(store, departs_later=departs_later, renewed=renewed)
        self._renewed = renewed
        waiters = waiters_of(store)
        self._queue, self._settled, self._blocks = waiters.spenders, waiters.settled, waiters.blocks

    def wait(self, take: Take) -> Flow[Decision]:
        """Take as soon as it fits, within the take's ``max_wait``; the caller has to call ``finish`` afterwards.

        Raises ``PaceTimeout`` as soon as it is certain that nothing will fit in time, at the latest when the time is
        over.
        """
        decision = yield from self._wait(take, frozenset(_buckets(take)))
        self._blocks.begin(_buckets(take))
        return decision

    def finish(self, take: Take) -> None:
        """Note that the block with this take is over, and settled."""
        self._blocks.end(_buckets(take))

    def _wait(self, take: Take, buckets: frozenset[str]) -> Flow[Decision]:
        deadline_us = self._slots.now_us() + take.max_wait_us
        if not self._queue.ahead(buckets):
            decision = yield from self._slots.try_take(replace(take, max_wait=0.0))
            if decision.allowed:
                return (yield from self._wait_for_slot(take, buckets, decision, deadline_us))
        place = yield from self._queue.wait_and_enter(buckets, self._slots.clock, deadline_us)
        if place is None:
            peeked: Decision = yield CallStore(self._slots.store, self._slots.store.peek(replace(take, max_wait=0.0)))
            raise pace_timeout(take, as_refused(peeked, peeked.retry_after * SECOND_US))
        try:
            decision, has_waited = yield from self._wait_as_first(take, buckets, deadline_us)
        finally:
            self._queue.leave(place)
        if has_waited:
            return decision
        return (yield from self._wait_for_slot(take, buckets, decision, deadline_us))

    def _wait_for_slot(
        self, take: Take, buckets: frozenset[str], decision: Decision, deadline_us: float
    ) -> Flow[Decision]:
        """Wait for a slot that the same operation has booked before; a caller that gives up here does not give it back.

        A caller that misses the slot, or comes after it was given back, takes anew, without the operation, and is
        charged.
        """
        if not decision.repeated:
            return decision
        now_us = self._slots.now_us()
        slot = slot_of(decision, now_us, now_us)
        if slot.at_us > now_us:
            if slot.at_us > deadline_us:
                raise pace_timeout(take, as_refused(decision, slot.at_us - deadline_us))
            yield from sleep(self._slots.clock, slot.at_us - now_us)
        if self._slots.may_go_again(slot):
            return decision
        left = replace(take, operation=None, max_wait=max(deadline_us - self._slots.now_us(), 0.0) / SECOND_US)
        with of_all(left, take.max_wait):
            return (yield from self._wait(left, buckets))

    def _wait_as_first(self, take: Take, buckets: Collection[str], deadline_us: float) -> Flow[tuple[Decision, bool]]:
        wake_up: WakeUp = yield NewWakeUp(self._slots.clock)
        self._settled.add(buckets, wake_up)
        try:
            return (yield from self._take_when_it_fits(take, wake_up, deadline_us))
        finally:
            self._settled.remove(buckets, wake_up)

    def _take_when_it_fits(self, take: Take, wake_up: WakeUp, deadline_us: float) -> Flow[tuple[Decision, bool]]:
        """The decision, and whether the caller has waited for its slot."""
        max_wait, patience_us = 0.0, 0.0
        while True:
            wake_up.set(math.inf)
            take = self._renewed(take)
            take_now, asked_us = replace(take, max_wait=max_wait), self._slots.now_us()
            decision, has_waited = yield from self._try(take_now)
            if decision.allowed:
                return decision, has_waited
            if decision.retry_after == math.inf and not max_wait:
                max_wait = MOMENT
                continue
            now_us, retry_us = self._slots.now_us(), decision.retry_after * SECOND_US + take_now.max_wait_us
            self._require_time(take, decision, now_us + retry_us - deadline_us, deadline_us - now_us)
            patience_us = patience_us or now_us + retry_us + LONGEST_SLEEP_US
            if now_us > patience_us:  # units that became free since then have gone to other processes or other callers
                left = replace(take, max_wait=max(deadline_us - now_us, 0.0) / SECOND_US)
                with of_all(left, take.max_wait):
                    return (yield from self._slots.wait(left)), True
            retry_us = min(retry_us, LONGEST_SLEEP_US)
            if not self._slots.store.in_process:
                max_wait = min(LEAD_US, max(deadline_us - now_us, 0.0)) / SECOND_US
                retry_us -= now_us - asked_us + random() * LEAD_US
            self._settled.set(wake_up, min(now_us + max(retry_us, 0.0), deadline_us))
            yield Sleep(wake_up)

    def _try(self, take: Take) -> Flow[tuple[Decision, bool]]:
        """The decision on a take, and whether the caller has waited for its slot, if that is a moment away."""
        if take.max_wait <= MOMENT:
            return (yield from self._slots.try_take(take)), False
        try:
            return (yield from self._slots.wait(take)), True
        except PaceTimeout as error:
            return error.decision, True

    def _require_time(self, take: Take, decision: Decision, too_long_us: float, left_us: float) -> None:
        """Raise ``PaceTimeout`` for a refused take, if its time is over, or is certainly too short."""
        if is_outage(decision) or decision.retry_after == math.inf:
            raise pace_timeout(take, decision)
        may_come_back = not self._slots.store.in_process or self._blocks.on_any(_buckets(take))
        if left_us <= 0.0 or (too_long_us > 0.0 and not may_come_back):
            raise pace_timeout(take, as_refused(decision, too_long_us))


def _buckets(take: Take) -> list[str]:
    return [charge.bucket for charge in take.charges]
