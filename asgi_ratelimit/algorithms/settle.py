"""What a decision really came to: how it is settled, once, in all its buckets.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from ..decision import Charge, Decision, SettledCharge, Settlement
from ..quotas import SECOND_US
from .kinds import ALGORITHMS, States, current
from .state import NEVER, State

MAX_IDS = 8
"""The most settlements that a bucket remembers."""


def settlement_of(decision: Decision, actual: Sequence[float]) -> Settlement | None:
    """How to settle a decision at the ``actual`` cost of each charge; ``None`` where nothing was booked."""
    if decision.take is None or decision.before is None or not decision.allowed:
        return None
    delay_us = float(round(decision.delay * SECOND_US))
    times = decision.times_us or repeat(decision.now_us)
    settled = []
    for charge, state, units, now in zip(decision.take.charges, decision.before, actual, times):
        booked = replace(charge, cost=decision.granted) if decision.take.best_effort else charge
        settled.append(_settled_charge(booked, state, units, now, delay_us))
    return Settlement(_identity(decision), tuple(settled), decision.degraded)


def _settled_charge(charge: Charge, state: State, units: float, now: float, delay_us: float) -> SettledCharge:
    algorithm = ALGORITHMS[type(charge.quota)]
    place = algorithm.place(charge.quota, state, now, charge.cost, delay_us)
    settled = SettledCharge(charge, max(now, state[1]), state[2], place, units)
    if units == 0:
        settled.before = state
        settled.after = algorithm.take(charge.quota, state, now, charge.cost, NEVER, delay_us)[0]
    return settled


def _identity(decision: Decision) -> float:
    """A number for a decision and its copies: no other decision has the same time, delay and states before it."""
    parts = [part for state in decision.before or () for part in state[1:]]
    cores = [state[0] for state in decision.before or ()]
    return float(hash((decision.now_us, decision.delay, tuple(cores), tuple(parts))) % 2**53)


def settle(settlement: Settlement, states: States, now: float) -> list[State | None]:
    """The new states of a settlement's buckets, ``None`` where nothing is written.

    Units that were charged in excess go back to where they were booked; missing units are debited. Nothing is settled
    twice, and nothing is given back to a bucket that was made anew since.
    """
    return [_settled(settlement.id, each, state, now) for each, state in zip(settlement.settled_charges, states)]


def _settled(identity: float, settled: SettledCharge, stored: State | None, now: float) -> State | None:
    quota, units = settled.charge.quota, settled.charge.cost - settled.actual
    algorithm = ALGORITHMS[type(quota)]
    if units == 0.0 or (stored is None and units > 0.0):
        return None
    state = current(quota, stored, now)
    if identity in state[4]:
        return None
    if settled.after is not None and settled.before is not None and state[:4] == settled.after[:4]:
        state = (*settled.before[:4], state[4])  # nothing else has happened since: the charge is undone
    elif units < 0.0:
        state = algorithm.debit(quota, state, now, -units)
    elif state[2] == settled.generation and settled.since_us <= state[1]:
        state = algorithm.give_back(quota, state, now, settled.since_us, settled.place, settled.charge.cost, units)
    else:
        return None
    core, last, generation, gaps, ids = state
    return (core, last, generation, gaps, (*ids, identity)[-MAX_IDS:])
