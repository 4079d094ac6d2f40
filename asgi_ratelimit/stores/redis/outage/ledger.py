"""The outage ledger: what this process admitted while the store was out, and what was to be settled there.

The store is charged with it when it is back, so that an outage gives nobody a second quota, and no refund is lost. Each
entry is an operation, and stays until the store has carried it out: sending it twice does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....algorithms import State, used
from ....clock import Clock
from ....decision import Charge, SettledCharge, Settlement, Take
from ...memory import MemoryStore
from ...operations import Operations, repayment_text, settlement_text, take_text
from ..actions import Repayment
from .repayments import Repayments, debited

MAX_ENTRIES = 10_000
"""The most buckets, operations and settlements in a ledger; what is beyond is never charged."""

LEAST_UNITS = 1e-6
"""Fewer units than this are what rounding leaves."""


class OutageLedger:
    """The buckets that were charged in ``local``, by the time of ``clock``, in place of the store.

    ``parts_of`` splits a take or a settlement into those that the store carries out, each an operation.
    """

    def __init__(self, local: MemoryStore, clock: Clock, parts_of: Callable[[Any], Sequence[Any]]) -> None:
        self._local = local
        self._clock = clock
        self._parts_of = parts_of
        self._entries: dict[str, tuple[Charge, Charge, State | None]] = {}
        self._takes: dict[str, tuple[Take, float]] = {}
        self._postponed: dict[str, Settlement] = {}
        self._repayments = Repayments()
        self._settled: Operations[bool] = Operations(MAX_ENTRIES)

    def __bool__(self) -> bool:
        return bool(self._entries or self._takes or self._postponed or self._repayments.pending)

    def record(self, take: Take, local_take: Take, before: Sequence[State | None], granted: float) -> None:
        """``take`` was granted as ``local_take`` in the local store, whose buckets were in the states ``before``."""
        for charge, local_charge, state in zip(take.charges, local_take.charges, before):
            if charge.cost and len(self._entries) < MAX_ENTRIES:
                self._entries.setdefault(charge.bucket, (charge, local_charge, state))
        if take.operation is not None and len(self._takes) < MAX_ENTRIES:
            for part in self._parts_of(take):
                self._takes.setdefault(take_text(part), (part, granted))

    def postpone(self, settlement: Settlement) -> None:
        """Keep a settlement until the store is back; settling twice does no harm."""
        for part in self._parts_of(settlement):
            if len(self._postponed) < MAX_ENTRIES:
                self._postponed.setdefault(settlement_text(part), part)

    def collect(self, is_here: Callable[[Charge], bool]) -> Iterator[Repayment | Settlement]:
        """What the store is to be charged with, for the buckets that ``is_here`` names; ``remove`` what it has done."""
        self._close(is_here)
        entries: list[Repayment | Settlement] = [*self._postponed.values(), *self._repayments.pending.values()]
        for entry in entries:
            if is_here(entry.charges[0]):
                yield entry

    def remove(self, entry: Repayment | Settlement, booked: Sequence[SettledCharge] = ()) -> None:
        """The store has carried an entry out; ``booked`` is where the charges of a repayment are."""
        if isinstance(entry, Settlement):
            self._postponed.pop(settlement_text(entry), None)
            return
        for settlement in self._repayments.remove(entry, booked):
            self.postpone(settlement)

    def is_open(self, settlement: Settlement) -> bool:
        """Whether all that a settlement settles is in the local store alone."""
        return not any(map(self._repayments.holds, settlement.settled_charges))

    async def settle(self, settlement: Settlement) -> list[Settlement]:
        """Settle what was decided here, once, where its charges are; returns what is to be settled at the store."""
        now, text = float(self._clock.now_us()), settlement_text(settlement)
        if self._settled.find(text, now):
            return []
        self._settled.add(text, True, now, math.inf)
        if settlement.undone is not None:
            for part in self._parts_of(settlement.undone):
                self._takes.pop(take_text(part), None)
        here: list[SettledCharge] = []
        there: list[Settlement] = []
        for settled in settlement.settled_charges:
            if self._repayments.holds(settled):
                there += self._repayments.settle(settled)
            else:
                here.append(settled)
        if here:
            await self._local.settle(replace(settlement, settled_charges=tuple(here)))
        return there

    def _close(self, is_here: Callable[[Charge], bool]) -> None:
        """Turn what was taken until now into repayments; takes that name an operation are repaid under it."""
        now = float(self._clock.now_us())
        units: dict[str, float] = {}
        charges: dict[str, Charge] = {}
        for bucket, (charge, local_charge, state) in list(self._entries.items()):
            if is_here(charge) and self._entries.pop(bucket, None) is not None:
                units[bucket], charges[bucket] = self._used_since(local_charge, state, now), charge
        for text, (take, granted) in list(self._takes.items()):
            if is_here(take.charges[0]) and self._takes.pop(text, None) is not None:
                owed = [_units_of(take, charge, granted, units) for charge in take.charges]
                self._repayments.add(Repayment(text, tuple(map(debited, take.charges, owed)), now))
        for bucket, charge in charges.items():
            if units[bucket] >= LEAST_UNITS:
                rest = replace(charge, cost=units[bucket])
                self._repayments.add(Repayment(repayment_text(bucket), (debited(rest, rest.cost),), now))

    def _used_since(self, charge: Charge, start: State | None, now: float) -> float:
        """The units in use now, less those that were in use in the state ``start``."""
        state = self._local.state_of(charge)
        before = 0.0 if start is None else used(charge.quota, start, now)
        return 0.0 if state is None else used(charge.quota, state, now) - before


def _units_of(take: Take, charge: Charge, granted: float, units: dict[str, float]) -> float:
    """What a take with an operation owes of a bucket, out of the ``units`` that are owed of it altogether."""
    cost = granted if take.best_effort else charge.cost
    left = max(units.get(charge.bucket, cost), 0.0)
    owed = min(cost, left)
    if charge.bucket in units:
        units[charge.bucket] = left - owed
    return owed
