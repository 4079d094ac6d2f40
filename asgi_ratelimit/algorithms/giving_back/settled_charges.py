"""What a settlement changes in a token bucket: units of a charge are given back, or more are charged.

``charges_ahead.py`` gives back a slot in the future, and ``past_charges.py`` units of a charge whose time has come.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ...decision import SettledCharge
from ...quotas import TokenBucket
from ..state import Record, State
from ..token_bucket_level import drained, scaled_cost
from .charges_ahead import slot_given_back
from .gaps import gaps_after
from .past_charges import units_given_back
from .queued_charges import QueuedCharge, queued_charge
from .recording import record_after_debit


def give_back(quota: TokenBucket, state: State, now: float, settled: SettledCharge) -> State:
    """The state without the units charged in excess; when everything is given back, the bucket is as if never used."""
    level, last, generation, _, record, older = state
    scaled = scaled_cost(quota, settled.charge.cost)
    units = scaled - (scaled_cost(quota, settled.actual) if settled.actual > 0.0 else 0.0)
    if units <= 0.0:
        return state
    charge, base = queued_charge(quota, state, settled, scaled, units), max(now, last)
    is_ahead = charge.slot > base
    if is_ahead:
        after, gaps, lows = slot_given_back(quota, state, base, charge)
    else:
        after, gaps, lows = units_given_back(quota, state, base, charge)
    if not record:
        return (after, last, generation, gaps, _first_record(quota, state, charge, after, is_ahead), older)
    start, used, sunk = record[0]
    sunk += 0.0 if is_ahead else level - after
    used -= units if settled.since_us >= start else 0.0
    if used <= 0.0:
        return (0.0, last, generation, (), (), older)
    return (after, last, generation, gaps, ((start, used, sunk), *lows), older)


def _first_record(quota: TokenBucket, state: State, charge: QueuedCharge, after: float, is_ahead: bool) -> Record:
    """The record after the first settlement of a bucket without one, whose level is ``after`` then.

    If what is left may be booked ahead, nobody knows for when. So its record starts when the queue, as long as it was
    before the settlement, has run off.
    """
    level, last, _, _, _, _ = state
    if not is_ahead and level <= quota.burst_level:  # from here on, it is recorded
        return ((last, after, level - after),) if after > 0.0 else ()
    is_whole = is_ahead and charge.units >= charge.scaled
    if not 0.0 < after < level or (is_whole and after >= drained(quota, charge.below, charge.passed)):
        return ()
    return ((float(math.ceil(last + level / quota.limit)), after, 0.0),)


def debit(quota: TokenBucket, state: State, now: float, units: float, place: float = 0.0) -> State:
    """The state with ``units`` more at the end of the queue, whether they conform or not."""
    level, last, generation, gaps, _, older = state
    since, scaled = max(now, last), scaled_cost(quota, units)
    left = drained(quota, level, since - last)
    record = record_after_debit(quota, state, since, left, scaled)
    return (left + scaled, since, generation, gaps_after(quota, gaps, since - last), record, older)
