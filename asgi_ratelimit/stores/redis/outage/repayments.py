"""Repayments: the charges on the store after an outage, and where they are from then on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from random import getrandbits

from ....algorithms import debited, where_debited
from ....decision import Charge, SettledCharge, Settlement, Take
from ...operations import take_text
from ..script_actions import Repaid, Repayment

MAX_REPAYMENTS = 10_000
"""The most repayments that are pending, and the most buckets whose repayments can be settled."""

MAX_PAID = 8
"""The most repayments of a bucket that can be settled."""


@dataclass(slots=True)
class Paid:
    """A charge of a repayment, for everything taken until ``until_us``; ``units`` of it can still be given back."""

    booked: SettledCharge
    until_us: float
    units: float


class Repayments:
    """Pending repayments, by their operation, and charges of those that the store has carried out, by bucket.

    A later settlement of a charge of the outage settles the repayment instead; while the repayment is under way, the
    settlement waits.
    """

    def __init__(self) -> None:
        self.pending: dict[str, Repayment] = {}
        self._by_bucket: dict[str, dict[str, Repayment]] = {}
        self._paid: OrderedDict[str, list[Paid]] = OrderedDict()
        self._takes: OrderedDict[str, Repaid] = OrderedDict()
        self._held: list[tuple[Settlement, Sequence[Take], str]] = []

    def add(self, repayment: Repayment) -> None:
        """Add a pending repayment."""
        self._forget(repayment.operation)
        if len(self.pending) < MAX_REPAYMENTS:
            self.pending[repayment.operation] = repayment
            for charge in repayment.charges:
                self._by_bucket.setdefault(charge.bucket, {})[repayment.operation] = repayment

    def of_buckets(self, buckets: Set[str], but: Set[str]) -> list[Repayment]:
        """The pending repayments for any of these buckets, except for the operations in ``but``."""
        repayments: dict[str, Repayment] = {}
        for bucket in buckets & self._by_bucket.keys():
            repayments |= self._by_bucket[bucket]
        return [repayment for operation, repayment in repayments.items() if operation not in but]

    def remove(self, repayment: Repayment, repaid: Repaid) -> list[Settlement]:
        """Remove a repayment that the store has carried out; return the settlements for the store."""
        if not self._forget(repayment.operation):
            return []
        if repayment.is_take and repaid.id:
            self._takes[repayment.operation] = repaid
            self._takes.move_to_end(repayment.operation)
        for each in repaid.settled_charges:
            self._add_paid(Paid(each, repayment.until_us, 0.0 if repayment.is_take else each.actual))
        for paid in (self._takes, self._paid):
            while len(paid) > MAX_REPAYMENTS:
                paid.popitem(last=False)
        held, self._held = self._held, []
        return [settlement for each in held for settlement in self.settle(*each)]

    def _add_paid(self, paid: Paid) -> None:
        """Add a charge of its bucket, and drop those that are of no more use."""
        bucket = paid.booked.charge.bucket
        others = [each for each in self._paid.pop(bucket, ()) if each.units > 0.0 or each.until_us > paid.until_us]
        self._paid[bucket] = [*others, paid][-MAX_PAID:]

    def _forget(self, operation: str) -> bool:
        """Remove a pending repayment; return whether there was one."""
        repayment = self.pending.pop(operation, None)
        for bucket in {charge.bucket for charge in repayment.charges} if repayment else ():
            self._by_bucket[bucket].pop(operation)
            if not self._by_bucket[bucket]:
                del self._by_bucket[bucket]
        return repayment is not None

    def holds(self, settled: SettledCharge) -> bool:
        """Whether a charge of the outage is in a repayment, and no longer in the local store alone."""
        bucket, since = settled.charge.bucket, settled.since_us
        return self._is_pending(settled) or any(since <= paid.until_us for paid in self._paid.get(bucket, ()))

    def release(self, texts: Collection[str]) -> list[str]:
        """Drop held settlements that would forget one of these operations; return their names."""
        released = [each for each in self._held if each[0].undone is not None and _is_one_of(each[1], texts)]
        self._held = [each for each in self._held if each not in released]
        return [name for _, _, name in released]

    def settle(self, settlement: Settlement, taken: Sequence[Take], name: str) -> list[Settlement]:
        """The settlements at the store for a settlement of charges in repayments; ``taken`` are its takes there.

        The settlement of an operation is the same as for all others who sent the operation.
        """
        if any(map(self._is_pending, settlement.settled_charges)):
            if len(self._held) < MAX_REPAYMENTS:
                self._held.append((settlement, taken, name))
            return []
        repaid = [self._takes[text] for text in map(take_text, taken) if text in self._takes]
        if repaid:
            return list(self._settlements_of_takes(settlement, taken, repaid))
        settlements = [each for settled in settlement.settled_charges for each in self._settlements_of(settled)]
        for take in taken if settlement.undone is not None else ():
            bucket = take.charges[0].bucket
            same = [at for at, each in enumerate(settlements) if each.charges[0].bucket == bucket]
            at = same[0] if same else len(settlements)
            settlements[at:] = settlements[at:] or [_alone(debited(take.charges[0], 0.0))]
            settlements[at] = replace(settlements[at], undone=take)
        return settlements

    def _settlements_of_takes(
        self, settlement: Settlement, taken: Sequence[Take], repaid: Sequence[Repaid]
    ) -> Iterator[Settlement]:
        """A settlement of each repaid take, under the id of its first part, which all others know."""
        booked = {each.charge.bucket: each for part in repaid for each in part.settled_charges}
        for take in taken:
            buckets = {charge.bucket for charge in take.charges}
            own = [each for each in settlement.settled_charges if each.charge.bucket in buckets]
            settled = tuple(
                [where_debited(self._charge(each), each.actual, booked.get(each.charge.bucket)) for each in own]
            )
            undone = None if settlement.undone is None else take
            if any(each.actual != each.charge.cost for each in settled):
                yield Settlement(repaid[0].id, settled, until_us=settlement.until_us, undone=undone)
            elif settled and undone is not None:  # a caller that knows where the units are may still give them back
                yield replace(_alone(settled[0]), undone=undone)

    def _settlements_of(self, settled: SettledCharge) -> Iterator[Settlement]:
        back = settled.charge.cost - settled.actual
        if back < 0.0:
            yield _alone(debited(self._charge(settled), -back))
        for paid in self._paid.get(settled.charge.bucket, ()):
            units = min(back, paid.units)
            if units > 0.0 and settled.since_us <= paid.until_us:
                paid.units -= units
                back -= units
                booked = paid.booked
                yield _alone(replace(booked, actual=booked.charge.cost - units))

    def _charge(self, settled: SettledCharge) -> Charge:
        """The charge in terms of the store, whose quota may be more than the share of this process."""
        paid = self._paid.get(settled.charge.bucket)
        return replace(paid[-1].booked.charge, cost=settled.charge.cost) if paid else settled.charge

    def _is_pending(self, settled: SettledCharge) -> bool:
        of_bucket = self._by_bucket.get(settled.charge.bucket, {})
        return any(settled.since_us <= repayment.until_us for repayment in of_bucket.values())


def _is_one_of(taken: Sequence[Take], texts: Collection[str]) -> bool:
    return any(take_text(take) in texts for take in taken)


def settlement_of_nothing(charge: Charge) -> Settlement:
    """A settlement that the store has to write although it changes no bucket."""
    return _alone(debited(charge, 0.0))


def _alone(settled: SettledCharge) -> Settlement:
    return Settlement(float(getrandbits(53)), (settled,))
