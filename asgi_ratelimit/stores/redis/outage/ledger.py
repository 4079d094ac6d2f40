"""The outage ledger: what this process admitted during an outage of the store, and settlements for the store.

The store is charged with its entries when it is back, so that an outage gives nobody a second quota, and no refund is
lost. Each entry is an operation, and stays until the store has carried it out: sending it twice does no harm.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from threading import RLock
from typing import Any
from weakref import WeakSet

from ....algorithms import State, debited, used
from ....clock import Clock
from ....decision import Charge, Decision, SettledCharge, Settlement, Take
from ....quotas import Quota
from ...memory import MemoryStore
from ...operations import Operations, repayment_text, settlement_text, take_text
from ..script_actions import Repaid, Repayment
from .repayments import Repayments

NOTHING_REPAID = Repaid()

MAX_ENTRIES = 10_000
"""The most buckets, operations and settlements in a ledger; anything beyond is never charged."""

LEAST_UNITS = 1e-6
"""Fewer units than this are a rounding error."""


@dataclass(slots=True)
class Entry:
    """A bucket of the store, and of the local store, in the state ``before``; ``units`` were granted since.

    Some of these units may belong to operations, each of which is repaid by itself.
    """

    charge: Charge
    local_charge: Charge
    before: State | None
    units: float = 0.0
    has_operations: bool = False


class OutageLedger:
    """The buckets that were charged in ``local``, by the time of ``clock``, instead of in the store.

    ``parts_of`` splits a take or a settlement into the parts that the store carries out, each an operation. Threads may
    share a ledger. A process that forks keeps its ledger, and the child starts with an empty one.
    """

    def __init__(self, local: MemoryStore, clock: Clock, parts_of: Callable[[Any], Sequence[Any]]) -> None:
        self._local = local
        self._clock = clock
        self._parts_of = parts_of
        self.start_anew()
        _ledgers.add(self)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries) + len(self._takes) + len(self._postponed) + len(self._repayments.pending)

    def start_anew(self) -> None:
        """Forget all entries, which belong to another process."""
        self._lock = RLock()
        self._entries: dict[str, Entry] = {}
        self._takes: dict[str, tuple[Take, float]] = {}
        self._unclear: set[str] = set()
        self._postponed: dict[str, Settlement] = {}
        self._repayments = Repayments()
        self._settled: Operations[bool] = Operations(MAX_ENTRIES)
        self.has_entries = False

    def adopt(self, charge: Charge, state: State) -> None:
        """Let the local store continue from a state that the store has reported, unless more was used here since."""
        with self._lock:
            if charge.bucket in self._entries:  # units that the store has charged must not count as taken here
                self._make_repayments(any_charge)
            self._local.adopt(charge, state)

    def quota_here(self, bucket: str) -> Quota | None:
        """The largest quota under which a bucket was granted something here since the store was last charged."""
        entry = self._entries.get(bucket)
        return None if entry is None else entry.local_charge.quota

    def decide(self, take: Take, local_take: Take, is_unclear: bool) -> Decision:
        """Decide ``take``, as ``local_take``, in the local store; what is charged there becomes an entry.

        If it ``is_unclear`` whether the store has carried the take out, its operation may exist there.
        """
        with self._lock:
            self.forget_refund(take)
            before = list(map(self._local.state_of, local_take.charges))
            decision = self._local.submit(local_take)
            if decision.allowed and before != list(map(self._local.state_of, local_take.charges)):
                self._record(take, local_take, before, decision.granted)
            if is_unclear and take.operation is not None:
                self._unclear |= self._takes.keys() & map(take_text, self._parts_of(take))
            return decision

    def forget_refund(self, take: Take) -> None:
        """Forget a refund that has not reached the store, because its operation is taken again."""
        if take.operation is None or not self.has_entries:
            return
        with self._lock:
            for name in self._repayments.release(set(map(take_text, self._parts_of(take)))):
                self._settled.forget(name)

    def _record(self, take: Take, local_take: Take, before: Sequence[State | None], granted: float) -> None:
        """Record a ``take`` that was granted as ``local_take`` in the local store, over the states ``before``."""
        for charge, local_charge, state in zip(take.charges, local_take.charges, before):
            if charge.cost and (charge.bucket in self._entries or len(self._entries) < MAX_ENTRIES):
                entry = self._entries.setdefault(charge.bucket, Entry(charge, local_charge, state))
                if local_charge.quota.most > entry.local_charge.quota.most:  # so that all used units count
                    entry.local_charge = local_charge
                entry.units += granted if take.best_effort else charge.cost
                entry.has_operations |= take.operation is not None
        if take.operation is not None and len(self._takes) < MAX_ENTRIES:
            for part in self._parts_of(take):
                self._takes.setdefault(take_text(part), (part, granted))
        self.has_entries = True

    def postpone(self, settlement: Settlement) -> None:
        """Keep a settlement until the store is back; settling twice does no harm."""
        with self._lock:
            for part in self._parts_of(settlement):
                if len(self._postponed) < MAX_ENTRIES:
                    self._postponed.setdefault(settlement_text(part), part)
            self.has_entries = True

    def collect(self, is_here: Callable[[Charge], bool], most: int | None = None) -> list[Repayment | Settlement]:
        """The entries to charge the store with, for buckets that ``is_here`` accepts; then ``remove`` what is done."""
        with self._lock:
            self._make_repayments(is_here)
            entries: list[Repayment | Settlement] = [*self._postponed.values(), *self._repayments.pending.values()]
            return list(islice((entry for entry in entries if is_here(entry.charges[0])), most))

    def of_buckets(self, buckets: Set[str], but: Set[str], is_here: Callable[[Charge], bool]) -> list[Repayment]:
        """Some of the entries for these buckets, except for the operations in ``but``.

        ``is_here`` accepts these buckets and others.
        """
        with self._lock:
            pending = self._repayments.of_buckets(buckets, but)
            if pending or buckets.isdisjoint(self._entries):
                return pending
            self._make_repayments(is_here)
            return self._repayments.of_buckets(buckets, but)

    def remove(self, entry: Repayment | Settlement, repaid: Repaid = NOTHING_REPAID) -> None:
        """Remove an entry that the store has carried out; ``repaid`` says where the charges of a repayment are."""
        with self._lock:
            if isinstance(entry, Settlement):
                self._postponed.pop(settlement_text(entry), None)
            else:
                for settlement in self._repayments.remove(entry, repaid):
                    self.postpone(settlement)
                    self._forget_here(settlement)
            self._update_has_entries()

    def _forget_here(self, settlement: Settlement) -> None:
        """Let the local store forget the operation that a settlement forgets."""
        if settlement.undone is not None:
            unchanged = replace(settlement, settled_charges=tuple(map(_unchanged, settlement.settled_charges)))
            with suppress(StopIteration):
                self._local.settle(unchanged).send(None)  # it never waits

    def _update_has_entries(self) -> None:
        self.has_entries = bool(self._entries or self._takes or self._postponed or self._repayments.pending)

    def is_open(self, settlement: Settlement) -> bool:
        """Whether all charges of a settlement are only in the local store."""
        with self._lock:
            return not any(map(self._repayments.holds, settlement.settled_charges))

    async def settle(self, settlement: Settlement) -> list[Settlement]:
        """Settle a local decision once, wherever its charges are; return the settlements for the store."""
        with self._lock:  # nothing that is awaited here ever waits
            now, name = float(self._clock.now_us()), settlement_text(settlement)
            if self._settled.find(name, now):
                return []
            self._settled.add(name, True, now, math.inf)
            taken = () if settlement.taken is None else self._parts_of(settlement.taken)
            texts = [] if settlement.undone is None else list(map(take_text, taken))
            if self._is_settled_there(settlement, texts):
                self._make_repayments(any_charge)
            for text in texts:
                self._takes.pop(text, None)
            is_there = list(map(self._repayments.holds, settlement.settled_charges))
            here = [each for each, there in zip(settlement.settled_charges, is_there) if not there]
            there = [each for each, there in zip(settlement.settled_charges, is_there) if there]
            left = replace(settlement, settled_charges=tuple(there))
            settlements = self._repayments.settle(left, taken, name) if there else []
            if here or settlements:  # also if the local store has to forget an operation
                await self._settle_here(replace(settlement, settled_charges=(*here, *map(_unchanged, there))))
            return settlements

    def _is_settled_there(self, settlement: Settlement, texts: Sequence[str]) -> bool:
        """Whether the store must be charged first: it may have the operation, or the bucket has other operations."""
        if texts:
            return not self._unclear.isdisjoint(texts)
        entries = [self._entries.get(charge.bucket) for charge in settlement.charges]
        return any(entry.has_operations for entry in entries if entry is not None)

    async def _settle_here(self, settlement: Settlement) -> None:
        for settled in settlement.settled_charges:
            entry = self._entries.get(settled.charge.bucket)
            if entry is not None:
                entry.units += max(settled.actual - settled.charge.cost, 0.0)
        await self._local.settle(settlement)

    def _make_repayments(self, is_here: Callable[[Charge], bool]) -> None:
        """Turn everything taken until now into repayments; takes that name an operation are repaid under it."""
        now = float(self._clock.now_us())
        units: dict[str, float] = {}
        charges: dict[str, Charge] = {}
        for bucket, entry in list(self._entries.items()):
            if is_here(entry.charge):
                del self._entries[bucket]
                units[bucket], charges[bucket] = self._units_of(entry, now), entry.charge
        for text, (take, granted) in list(self._takes.items()):
            if is_here(take.charges[0]):
                del self._takes[text]
                self._unclear.discard(text)
                charges_of_take = [_granted(take, charge, granted) for charge in take.charges]
                owed = [debited(charge, _owed_of(charge, units)) for charge in charges_of_take]
                self._repayments.add(Repayment(text, tuple(owed), now, True))
        for bucket, charge in charges.items():
            if units[bucket] >= LEAST_UNITS:
                rest = replace(charge, cost=units[bucket])
                self._repayments.add(Repayment(repayment_text(bucket), (debited(rest, rest.cost),), now))
        self._update_has_entries()

    def _units_of(self, entry: Entry, now: float) -> float:
        """The units in use now, less those that were in use before; units that have run off are not owed."""
        quota, state = entry.local_charge.quota, self._local.state_of(entry.local_charge)
        before = 0.0 if entry.before is None else used(quota, entry.before, now)
        return 0.0 if state is None else min(used(quota, state, now) - before, entry.units)


_ledgers: WeakSet[OutageLedger] = WeakSet()


def _start_anew() -> None:
    """Empty the ledgers in a child: the parent repays them, and a child that did so too would charge twice."""
    for ledger in list(_ledgers):
        ledger.start_anew()


os.register_at_fork(after_in_child=_start_anew)


def _unchanged(settled: SettledCharge) -> SettledCharge:
    return replace(settled, actual=settled.charge.cost)


def any_charge(charge: Charge) -> bool:
    """Accepts each charge, wherever its bucket is."""
    return True


def _granted(take: Take, charge: Charge, granted: float) -> Charge:
    return replace(charge, cost=granted) if take.best_effort else charge


def _owed_of(charge: Charge, units: dict[str, float]) -> float:
    """What a charge of an operation owes of its bucket, out of the ``units`` that are owed of it altogether."""
    left = max(units.get(charge.bucket, charge.cost), 0.0)
    owed = min(charge.cost, left)
    if charge.bucket in units:
        units[charge.bucket] = left - owed
    return owed
