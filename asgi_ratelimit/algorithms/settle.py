"""What a decision turned out to be: how it is settled, once, in all its buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from ..decision import Decision, SettledCharge, Settlement
from ..quotas import SECOND_US
from .kinds import ALGORITHMS, States, known
from .state import State

MAX_IDS = 8
"""How many settlements a bucket remembers."""


def settlement_of(decision: Decision, actual: Sequence[float]) -> Settlement | None:
    """What it takes to settle a decision at the ``actual`` cost of each charge; ``None`` where nothing was booked."""
    if decision.take is None or decision.before is None or not decision.allowed:
        return None
    delay_us = float(round(decision.delay * SECOND_US))
    times = decision.times_us or repeat(decision.now_us)
    lines = []
    for charge, state, used, now in zip(decision.take.charges, decision.before, actual, times):
        booked = replace(charge, cost=decision.granted) if decision.take.best_effort else charge
        at = ALGORITHMS[type(charge.quota)].place(charge.quota, state, now, booked.cost, delay_us)
        line = SettledCharge(booked, max(now, state[1]), state[2], at, used)
        if used == 0:
            line.before = state
            line.after = ALGORITHMS[type(charge.quota)].book(charge.quota, state, now, booked.cost, delay_us)
        lines.append(line)
    return Settlement(_identity(decision), tuple(lines), decision.degraded)


def _identity(decision: Decision) -> float:
    """A number that marks a decision and its copies: what it found, and when, no other decision has found alike."""
    found = [part for state in decision.before or () for part in state[1:]]
    cores = [state[0] for state in decision.before or ()]
    return float(hash((decision.now_us, decision.delay, tuple(cores), tuple(found))) % 2**53)


def settle(settlement: Settlement, states: States, now: float) -> list[State | None]:
    """The new states of a settlement's buckets, ``None`` where nothing is written.

    What was too much goes back to where it was booked, what was too little is owed. Nothing is done twice, nor for
    a bucket that was made anew since.
    """
    return [_settled(settlement.id, line, state, now) for line, state in zip(settlement.lines, states)]


def _settled(identity: float, line: SettledCharge, stored: State | None, now: float) -> State | None:
    quota, units = line.charge.quota, line.charge.cost - line.actual
    algorithm = ALGORITHMS[type(quota)]
    if units == 0.0 or (stored is None and units > 0.0):
        return None
    state = known(quota, stored, now)
    if identity in state[4]:
        return None
    if line.after is not None and line.before is not None and state[:4] == line.after[:4]:
        state = (*line.before[:4], state[4])  # nothing has happened since: it is as if it had never been booked
    elif units < 0.0:
        state = algorithm.owe(quota, state, now, -units)
    elif state[2] == line.era and line.since_us <= state[1]:
        state = algorithm.give_back(quota, state, now, line.since_us, line.place, line.charge.cost, units)
    else:
        return None
    core, last, era, holes, ids = state
    return (core, last, era, holes, (*ids, identity)[-MAX_IDS:])
