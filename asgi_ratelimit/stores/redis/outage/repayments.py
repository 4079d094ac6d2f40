"""Repayments: what the store is charged with after an outage, and where those charges are from then on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from random import getrandbits

from ....decision import Charge, SettledCharge, Settlement, Take
from ...operations import take_text
from ..script_actions import Repayment

MAX_REPAYMENTS = 10_000
"""The most repayments that are pending, and the most buckets whose repayments can be settled."""

MAX_PAID = 8
"""The most repayments of a bucket that can be settled."""


@dataclass(slots=True)
class Paid:
    """A charge of a repayment, for all that was taken until ``until_us``; ``units`` of it can still be given back."""

    booked: SettledCharge
    until_us: float
    units: float


class Repayments:
    """Repayments that are pending, by their operation, and charges of those that the store has carried out, by bucket.

    Who settles a charge of the outage later settles the repayment instead; while that is under way, it waits.
    """

    def __init__(self) -> None:
        self.pending: dict[str, Repayment] = {}
        self._by_bucket: dict[str, dict[str, Repayment]] = {}
        self._paid: OrderedDict[str, list[Paid]] = OrderedDict()
        self._held: list[tuple[Sequence[SettledCharge], Sequence[Take], str]] = []

    def add(self, repayment: Repayment) -> None:
        """Another one that is pending."""
        self._forget(repayment.operation)
        if len(self.pending) < MAX_REPAYMENTS:
            self.pending[repayment.operation] = repayment
            for charge in repayment.charges:
                self._by_bucket.setdefault(charge.bucket, {})[repayment.operation] = repayment

    def of_buckets(self, buckets: Set[str], but: Set[str]) -> list[Repayment]:
        """Those that are pending for any of these buckets, except for the operations in ``but``."""
        found: dict[str, Repayment] = {}
        for bucket in buckets & self._by_bucket.keys():
            found |= self._by_bucket[bucket]
        return [repayment for operation, repayment in found.items() if operation not in but]

    def remove(self, repayment: Repayment, booked: Sequence[SettledCharge]) -> list[Settlement]:
        """The store has carried one out, and has its charges at ``booked``; returns what is to be settled there."""
        if not self._forget(repayment.operation):
            return []
        for each in booked:
            paid = self._paid.setdefault(each.charge.bucket, [])
            self._paid.move_to_end(each.charge.bucket)
            paid.append(Paid(each, repayment.until_us, each.actual))
            del paid[:-MAX_PAID]
        while len(self._paid) > MAX_REPAYMENTS:
            self._paid.popitem(last=False)
        held, self._held = self._held, []
        return [settlement for each in held for settlement in self.settle(*each)]

    def _forget(self, operation: str) -> bool:
        """Remove a pending repayment; whether there was one."""
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
        """Do not settle what forgets one of these operations, and is not settled yet; returns what that is called."""
        released = [name for _, undone, name in self._held if not _are_others(undone, texts)]
        self._held = [each for each in self._held if _are_others(each[1], texts)]
        return released

    def settle(self, settled: Sequence[SettledCharge], undone: Sequence[Take], name: str) -> list[Settlement]:
        """What settles charges that are in repayments, at the store, and forgets the operations of ``undone``."""
        if any(map(self._is_pending, settled)):
            if len(self._held) < MAX_REPAYMENTS:
                self._held.append((settled, undone, name))
            return []
        settlements = [settlement for each in settled for settlement in self._settlements_of(each)]
        for take in undone:
            bucket = take.charges[0].bucket
            same = [at for at, each in enumerate(settlements) if each.charges[0].bucket == bucket]
            at = same[0] if same else len(settlements)
            settlements[at:] = settlements[at:] or [_alone(debited(take.charges[0], 0.0))]
            settlements[at] = replace(settlements[at], undone=take)
        return settlements

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


def _are_others(undone: Sequence[Take], texts: Collection[str]) -> bool:
    return not any(take_text(take) in texts for take in undone)


def debited(charge: Charge, units: float) -> SettledCharge:
    """``units`` of the bucket of ``charge``, to be charged whether they fit or not."""
    return SettledCharge(charge, 0.0, 0, 0.0, 0.0, charge.cost + units)


def settlement_of_nothing(charge: Charge) -> Settlement:
    """A settlement that the store has to write, and that changes no bucket."""
    return _alone(debited(charge, 0.0))


def _alone(settled: SettledCharge) -> Settlement:
    return Settlement(float(getrandbits(53)), (settled,))
