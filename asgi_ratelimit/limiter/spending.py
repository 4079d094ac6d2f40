"""Costs that are known only afterwards: taken as an estimate, and settled at the end of a block, however it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import random
from typing import Any, Generic, TypeAlias, TypeVar

from ..algorithms.take import booked_ahead
from ..decision import Decision, Take, is_outage
from ..hooks import Hooks
from ..leases import PlaceWaiter, leases_of
from ..stores import settle
from ..waiting.drivers import Flow, GiveBack, WakeUp, run_async, run_sync
from ..waiting.waiter import SlotWaiter, pace_timeout, too_late
from .live_quotas import Cost, LiveQuotas, charged_units

T = TypeVar("T")
W = TypeVar("W", bound=SlotWaiter)

# Waits until a take is admitted, or raises ``PaceTimeout``.
Wait: TypeAlias = Callable[[Take], Flow[Decision]]

# The longest sleep of the first caller: another process may have settled.
LONGEST_SLEEP_US = 1_000_000.0

# How long the first caller lets others outrun it, from when it should have been served.
PATIENCE_US = 20_000_000.0

# Within this time after their units are there, the first callers of several processes ask for them, at random.
SPREAD_US = 5_000.0


class Block(Generic[W, T]):
    """A block with and without ``async``, which waits until its take is admitted.

    ``admitted`` lets the take wait by a function, counts its decision, and passes it to hooks.
    """

    def __init__(self, take: Take, waiter: W, admitted: Callable[[Take, Wait], Flow[Decision]]) -> None:
        self._take, self._waiter, self._admitted = take, waiter, admitted

    def _enter(self) -> Flow[T]:
        """Wait; what this returns is the value of the block."""
        raise NotImplementedError

    def _leave(self) -> Flow[None]:
        """What the end of the block does, however it comes."""
        raise NotImplementedError

    async def __aenter__(self) -> T:
        return await run_async(self._enter())

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        if kind is GeneratorExit:  # the event loop of its task is gone, so nothing can be awaited
            run_sync(self._leave())
        else:
            await run_async(self._leave())

    def __bool__(self) -> bool:
        raise TypeError("a block lacks its async with, so nothing is limited: async with limiter.hold(key)")

    def __enter__(self) -> T:
        return run_sync(self._enter())

    def __exit__(self, *_: object) -> None:
        run_sync(self._leave())


class Spending(Block["SpendWaiter", "Spending"]):
    """The block of ``Limiter.spend``, with and without ``async``: it waits when it is entered, and settles at its end.

    It has the ``decision`` on its take, and ``actual``, the units of each charge that its end settles.
    """

    actual: list[float]
    _is_under_way = False

    def __init__(self, *block: Any, live: LiveQuotas) -> None:
        super().__init__(*block)
        self._live = live

    def settle(self, actual: Cost | None = None, **units: float) -> None:
        """Set the actual cost so far, for the named quotas, ``settle(tokens=1234)``, or for every quota.

        Names that are not Python identifiers go in a mapping, ``settle({"per-minute": 5})``. A later call overrides an
        earlier one. Raises ``ValueError`` for an unknown name or a number that is not valid, and for one number, except
        0, where the estimate has different ones, or after the block.
        """
        if not self._is_under_way:
            raise ValueError("the block has ended, and its cost is settled: call spent.settle(tokens=1234) within it")
        if isinstance(actual, Mapping):
            units = {**actual, **units}
        elif actual is not None:
            self.actual = self._live.actual_units(self.decision, actual, charged_units(self.decision))
        self.actual = self._live.settled_units(self.decision, units, self.actual)

    def _enter(self) -> Flow[Spending]:
        self.decision = yield from self._admitted(self._take, self._waiter.wait_to_spend)
        self.actual = charged_units(self.decision)
        self._waiter.units.blocks[id(self._take)] = self._take
        self._is_under_way = True
        return self

    def _leave(self) -> Flow[None]:
        self._is_under_way = False
        try:
            if self.actual != charged_units(self.decision) or self._take.operation is not None:
                yield GiveBack(self._waiter.store, partial(settle, self._waiter.store, self.decision, self.actual))
        finally:
            self._waiter.units.blocks.pop(id(self._take), None)


class Holding(Block[PlaceWaiter, Decision]):
    """The block of ``Limiter.hold``, with and without ``async``; entering it returns the decision."""

    def __init__(self, *block: Any, hooks: Hooks) -> None:
        super().__init__(*block)
        self._hooks = hooks
        self._decisions: list[Decision] = []  # one for each time that it was entered, and not left

    def _enter(self) -> Flow[Decision]:
        decision = yield from self._admitted(self._take, self._waiter.wait_for_all)
        leases_of(self._waiter.store).hold(decision)  # an override lets it pass without waiting
        self._hooks.held(decision, 1)
        self._decisions.append(decision)
        return decision

    def _leave(self) -> Flow[None]:
        decision = self._decisions.pop()
        self._hooks.held(decision, -1)
        yield GiveBack(self._waiter.store, partial(leases_of(self._waiter.store).give_back, decision))


class SpendWaiter(SlotWaiter):
    """Waits until takes over one store fit, in the order of all callers of this process.

    Nothing is booked ahead, so that units that others give back are used at once. The first caller of a set of buckets
    takes its estimate as soon as it fits: it looks again when its refusal ends, when this process settles something on
    its buckets, and at least once a second, because other processes settle too. The others sleep until they are first.
    A caller that others have outrun for too long books its slot.
    """

    def wait_to_spend(self, take: Take, deadline_us: float | None = None) -> Flow[Decision]:
        """Take as soon as it fits, within the take's ``max_wait``, or before the deadline of one that waited before.

        Raises ``PaceTimeout`` as soon as it is certain that nothing will fit in time, at the latest when the time is
        over. A slot that the same operation has booked is waited for as by any paced caller.
        """
        buckets = _buckets_of(take)
        came_us = self.now_us()
        deadline_us = came_us + take.max_wait_us if deadline_us is None else deadline_us
        decision = None if self._turns.ahead(("spending", *buckets)) else (yield from self._try_to_spend(take))
        if decision is None or not decision.allowed:
            decision = yield from self._in_turn(take, buckets, deadline_us, -came_us)
        if decision is None or decision.repeated:
            return (yield from self.wait(self._renewed(take), deadline_us=deadline_us))
        return (yield from self.departed(decision))

    def _in_turn(self, take: Take, buckets: tuple[str, ...], deadline_us: float, first: float) -> Flow[Decision | None]:
        """The decision that lets the take go; ``None`` if others have outrun it for too long, so that it books."""
        place = yield from self._enter(("spending", *buckets), take, deadline_us, first)
        patience_us = 0.0  # until when it lets others outrun it; 0 before it was refused
        wake_up = WakeUp(self.clock)
        self.units.add(wake_up, buckets)
        try:
            while True:
                wake_up.set(math.inf)
                sent_us = self.now_us()
                decision = yield from self._try_to_spend(take)
                if decision.allowed:
                    return decision
                now_us, wait_us = self.now_us(), decision.wait_us
                self._require_time(take, decision, now_us, deadline_us)
                if not patience_us or units_ahead(decision):  # one at a time books ahead: nothing comes back then
                    patience_us = now_us + wait_us + PATIENCE_US * (1.0 + random())
                if now_us > patience_us:
                    return None
                wait_us = min(wait_us, LONGEST_SLEEP_US)
                if not self.store.in_process:  # so processes far from the store and near to it ask there at one time
                    wait_us += random() * SPREAD_US - (now_us - sent_us)
                self.units.wake_at(wake_up, min(now_us + max(wait_us, 0.0), deadline_us))
                yield wake_up
        finally:
            self.units.discard(wake_up, buckets)
            self._turns.leave(place)

    def _try_to_spend(self, take: Take) -> Flow[Decision]:
        """Only a take that may wait gets a cost above the burst, from a full bucket."""
        max_wait = 1e-6 if any(each.cost > each.quota.most for each in take.charges) else 0.0
        return (yield from self.try_take(replace(self._renewed(take), max_wait=max_wait)))

    def _require_time(self, take: Take, decision: Decision, now_us: float, deadline_us: float) -> None:
        """Raise ``PaceTimeout`` for a refused take, if its time is over, or is certainly too short."""
        if is_outage(decision) or decision.wait_us == math.inf:
            raise pace_timeout(take, decision)
        too_long_us = now_us + decision.wait_us - deadline_us
        may_come_back = not self.store.in_process or self.units.may_come(_buckets_of(take))
        if now_us >= deadline_us or (too_long_us > 0.0 and not may_come_back):
            raise too_late(take, decision, too_long_us)


def units_ahead(decision: Decision) -> list[float]:
    """The units that are booked for later, of each quota that lets callers wait: less than its slack is rounding."""
    charged = zip(decision.charges, decision.stored)
    ahead = [(booked_ahead(charge.quota, state, decision.now_us), charge.quota.slack) for charge, state in charged]
    return [units for units, slack in ahead if units > slack]


def _buckets_of(take: Take) -> tuple[str, ...]:
    return tuple(sorted([charge.bucket for charge in take.charges]))
