"""How the actual cost of a decision is settled, once, in all its buckets.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from ..decision import Charge, Decision, SettledCharge, Settlement, Take
from ..quotas import SECOND_US
from .quota_kinds import ALGORITHMS, States, current
from .state import State


def settlement_of(decision: Decision, actual: Sequence[float]) -> Settlement | None:
    """How to settle a decision at the ``actual`` cost of each charge; ``None`` if nothing was booked."""
    if decision.take is None or not decision.allowed:
        return None
    if decision.booked is not None:
        return _settlement_of_debits(decision, decision.take, decision.booked, actual)
    if decision.before is None:
        return None
    delay_us = float(round(decision.delay * SECOND_US))
    times = decision.times_us or repeat(decision.now_us)
    settled = []
    for charge, state, units, now in zip(decision.take.charges, decision.before, actual, times):
        if not charge.cost:  # a condition has charged nothing
            continue
        granted = _granted(decision, decision.take, charge)
        settled.append(_settled_charge(granted, state, units, now, delay_us))
    return Settlement(_identity(decision), tuple(settled), decision.degraded) if settled else None


def _granted(decision: Decision, take: Take, charge: Charge) -> Charge:
    return replace(charge, cost=decision.granted) if take.best_effort else charge


def _settlement_of_debits(
    decision: Decision, take: Take, booked: Sequence[SettledCharge], actual: Sequence[float]
) -> Settlement:
    """How to settle a decision for which these charges were debited."""
    by_bucket = {each.charge.bucket: each for each in booked}
    charged = [(_granted(decision, take, charge), units) for charge, units in zip(take.charges, actual) if charge.cost]
    settled = [where_debited(charge, units, by_bucket.get(charge.bucket)) for charge, units in charged]
    return Settlement(_identity(decision), tuple(settled))


def where_debited(charge: Charge, actual: float, booked: SettledCharge | None) -> SettledCharge:
    """A charge at its ``actual`` cost, of which those units were debited that are ``booked``.

    No more than these come back, and nothing where they are not known; what is above the cost is debited as well.
    """
    back = charge.cost - actual
    if booked is None or back < 0.0:
        return debited(charge, max(-back, 0.0))
    return replace(booked, actual=booked.charge.cost - min(back, booked.charge.cost))


def debited(charge: Charge, units: float) -> SettledCharge:
    """``units`` of the bucket of ``charge``, to be charged whether they fit or not."""
    return SettledCharge(charge, 0.0, 0, 0.0, 0.0, charge.cost + units)


def _settled_charge(charge: Charge, state: State, units: float, now: float, delay_us: float) -> SettledCharge:
    algorithm = ALGORITHMS[type(charge.quota)]
    place, slot = algorithm.place(charge.quota, state, now, charge.cost, delay_us)
    return SettledCharge(charge, max(now, state[1]), state[2], place, slot, units)


def _identity(decision: Decision) -> float:
    """A number for a decision and its copies, the same in all processes.

    No other decision has the same birth. If it has no birth, no other decision has the same time, delay and states
    before it.
    """
    if decision.birth:
        return float(decision.birth)
    numbers = [state[:5] for state in decision.before or ()]  # not ``older``: a hash of bytes differs between processes
    return float(hash((decision.now_us, decision.delay, tuple(numbers))) % 2**53)


def settle(settlement: Settlement, states: States, now: float, birth: int = 0) -> list[State | None]:
    """The new states of a settlement's buckets; ``None`` for each that is not written.

    Units that were charged in excess are given back; missing units are debited. Nothing is given back to a bucket that
    was made anew since. A state that is made for charge number i is of the generation ``birth + i``.
    """
    charges = enumerate(zip(settlement.settled_charges, states))
    return [_settled(each, state, now, birth + number) for number, (each, state) in charges]


def _settled(settled: SettledCharge, stored: State | None, now: float, birth: int) -> State | None:
    quota, units = settled.charge.quota, settled.charge.cost - settled.actual
    algorithm = ALGORITHMS[type(quota)]
    if units == 0.0 or (stored is None and units > 0.0):
        return None
    state = current(quota, stored, now, birth)
    is_there = state[2] == settled.generation and settled.since_us <= state[1]
    if units < 0.0:
        return algorithm.debit(quota, state, now, -units, settled.place if is_there else -math.inf)
    return algorithm.give_back(quota, state, now, settled) if is_there else None
