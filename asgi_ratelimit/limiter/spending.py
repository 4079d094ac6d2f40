"""Costs that are known only afterwards: taken as an estimate, and settled at the end of a block, however it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from random import random
from typing import Any

from ..algorithms import booked_ahead
from ..decision import Decision, Take, is_outage
from ..hooks import ObservedWait
from ..quotas import SECOND_US
from ..stores import Store, settle
from ..stores.event_loops import running_loop
from ..waiting import (
    CallStore,
    Flow,
    GiveBack,
    Renewed,
    SlotWaiter,
    as_refused,
    of_all,
    pace_timeout,
    run_async,
    run_sync,
    unchanged,
    waiters_of,
)
from .charges import Cost, actual_units, charged_units, settled_units

LONGEST_SLEEP_US = 1_000_000.0
"""The longest sleep of the first caller: another process may have settled."""

PATIENCE_US = 20_000_000.0
"""How long the first caller lets others outrun it, from when it should have been served."""

SPREAD_US = 5_000.0
"""Within this time after their units are there, the first callers of several processes ask for them, at random."""

MOMENT = 1e-6
"""A wait in seconds that is next to none."""


class Spent:
    """The take of a block, as its ``decision``, and its actual cost so far."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.actual = charged_units(decision)
        """The units of each charge that the end of the block settles."""
        self.is_over = False
        """Whether the block has ended."""

    def settle(self, actual: Cost | None = None, **units: float) -> None:
        """Set the actual cost so far, for the named quotas, ``settle(tokens=1234)``, or for every quota.

        Names that are not Python identifiers go in a mapping, ``settle({"per-minute": 5})``. A later call overrides an
        earlier one. Raises ``ValueError`` for an unknown name or a number that is not valid, and for one number, except
        0, where the estimate has different ones, or after the block.
        """
        if self.is_over:
            raise ValueError("the block has ended, and its cost is settled: call spent.settle(tokens=1234) within it")
        if actual is not None and not isinstance(actual, Mapping):
            self.actual = actual_units(self.decision, actual, self.actual)
        named = {**(actual if isinstance(actual, Mapping) else {}), **units}
        self.actual = settled_units(self.decision, named, self.actual)


class Spending:
    """The context manager of ``Limiter.spend``, with and without ``async``; it waits when it is entered."""

    def __init__(
        self,
        store: Store,
        take: Take,
        waiting_call: Callable[[], AbstractContextManager[ObservedWait]],
        count: Callable[[Take], Coroutine[Any, Any, Decision]] | None = None,
        renewed: Renewed = unchanged,
    ) -> None:
        """``count`` decides a take without a wait, if an override lets everything pass.

        ``renewed`` returns a take under the quotas that now apply.
        """
        self._store = store
        self._count = count
        self._waiter = SpendWaiter(store, renewed=renewed)
        self._take = take
        self._waiting_call = waiting_call
        self._entered: list[Spent] = []

    async def __aenter__(self) -> Spent:
        running_loop("spend with async", "enter a block of SyncLimiter.spend in a thread, by trio.to_thread.run_sync")
        return await run_async(self._wait())

    async def __aexit__(self, *_: object) -> None:
        await run_async(self._settle())

    def __enter__(self) -> Spent:
        return run_sync(self._wait())

    def __exit__(self, *_: object) -> None:
        run_sync(self._settle())

    def _wait(self) -> Flow[Spent]:
        decision: Decision
        if self._count is not None:
            decision = yield CallStore(self._store, self._count(self._take))
        else:
            with self._waiting_call() as wait:
                decision = wait.decision = yield from self._waiter.wait(self._take)
        self._entered.append(Spent(decision))
        return self._entered[-1]

    def _settle(self) -> Flow[None]:
        spent = self._entered.pop()
        spent.is_over = True
        try:
            if spent.actual != charged_units(spent.decision) or spent.decision.take.operation is not None:
                yield GiveBack(self._store, partial(settle, self._store, spent.decision, spent.actual))
        finally:
            if self._count is None:
                self._waiter.finish(self._take)


class SpendWaiter:
    """Waits until takes over one store fit, in the order of all callers of this process.

    Nothing is booked ahead, so that units that others give back are used at once. The first caller of a set of buckets
    takes its estimate as soon as it fits: it looks again when its refusal ends, when this process settles something on
    its buckets, and at least once a second, because other processes settle too. The others sleep until they are first.
    A caller that others have outrun for too long books its slot. ``renewed`` returns a take under the quotas that now
    apply.
    """

    def __init__(self, store: Store, *, renewed: Renewed = unchanged) -> None:
        self._store = store
        self._slots = SlotWaiter(store, renewed=renewed)
        self._now_us, self._clock = self._slots.now_us, self._slots.clock
        self._renewed = renewed
        waiters = waiters_of(store)
        self._queue, self._units = waiters.spenders, waiters.units

    def wait(self, take: Take) -> Flow[Decision]:
        """Take as soon as it fits, within the take's ``max_wait``; the caller has to call ``finish`` afterwards.

        Raises ``PaceTimeout`` as soon as it is certain that nothing will fit in time, at the latest when the time is
        over. A slot that the same operation has booked is waited for as by any paced caller.
        """
        buckets, deadline_us = _buckets_of(take), self._now_us() + take.max_wait_us
        decision = None if self._queue.ahead(buckets) else (yield from self._try_take(take))
        if decision is None or not decision.allowed:
            decision = yield from self._wait_in_turn(take, buckets, deadline_us)
        if decision is None or decision.repeated:
            left = replace(take, max_wait=max(deadline_us - self._now_us(), 0.0) / SECOND_US)
            with of_all(left, take.max_wait):
                decision = yield from self._slots.wait(self._renewed(left))
        self._units.begin(buckets)
        return decision

    def finish(self, take: Take) -> None:
        """Note that the block with this take is over, and settled."""
        self._units.end(_buckets_of(take))

    def _wait_in_turn(self, take: Take, buckets: frozenset[str], deadline_us: float) -> Flow[Decision | None]:
        place = yield from self._queue.wait_and_enter(buckets, self._clock, deadline_us)
        if place is None:
            peeked: Decision = yield CallStore(self._store, self._store.peek(_at_once(take)))
            raise pace_timeout(take, as_refused(peeked, peeked.retry_after * SECOND_US))
        attempt = partial(self._attempt, take, deadline_us, _First())
        try:
            return (yield from self._units.retry(buckets, self._clock, attempt))
        finally:
            self._queue.leave(place)

    def _attempt(self, take: Take, deadline_us: float, first: _First) -> Flow[Decision | float | None]:
        """The decision that lets the first caller go, or the time of its next attempt.

        ``None`` if others have outrun it for too long.
        """
        sent_us = self._now_us()
        decision = yield from self._try_take(take)
        if decision.allowed:
            return decision
        now_us, wait_us = self._now_us(), decision.wait_us
        self._require_time(take, decision, now_us, deadline_us)
        if not first.patience_us or _is_booked_ahead(decision):  # one at a time books ahead: nothing comes back then
            first.patience_us = now_us + wait_us + PATIENCE_US * (1.0 + random())
        if now_us > first.patience_us:
            return None
        wait_us = min(wait_us, LONGEST_SLEEP_US)
        if not self._store.in_process:  # so processes far from the store and near to it ask there at one time
            wait_us += random() * SPREAD_US - (now_us - sent_us)
        return min(now_us + max(wait_us, 0.0), deadline_us)

    def _try_take(self, take: Take) -> Flow[Decision]:
        return (yield from self._slots.try_take(_at_once(self._renewed(take))))

    def _require_time(self, take: Take, decision: Decision, now_us: float, deadline_us: float) -> None:
        """Raise ``PaceTimeout`` for a refused take, if its time is over, or is certainly too short."""
        if is_outage(decision) or decision.wait_us == math.inf:
            raise pace_timeout(take, decision)
        too_long_us = now_us + decision.wait_us - deadline_us
        may_come_back = not self._store.in_process or self._units.may_come(_buckets_of(take))
        if now_us >= deadline_us or (too_long_us > 0.0 and not may_come_back):
            raise pace_timeout(take, as_refused(decision, too_long_us))


@dataclass(slots=True)
class _First:
    """The first caller of a set of buckets."""

    patience_us: float = 0.0
    """Until when it lets others outrun it; 0 before it was refused."""


def _at_once(take: Take) -> Take:
    """The take without a wait; but only one that may wait gets a cost above the burst, from an empty bucket."""
    return replace(take, max_wait=MOMENT if any(each.cost > each.quota.most for each in take.charges) else 0.0)


def _is_booked_ahead(decision: Decision) -> bool:
    """Whether a slot of another caller is still to come."""
    charged = zip(decision.charges, decision.stored)
    return any(booked_ahead(charge.quota, state, decision.now_us) > charge.quota.slack for charge, state in charged)


def _buckets_of(take: Take) -> frozenset[str]:
    return frozenset([charge.bucket for charge in take.charges])
