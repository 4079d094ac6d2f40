"""Units of a charge of a token bucket whose time has come are given back: the level sinks, and the gaps above as well.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from ...quotas import TokenBucket
from ..state import NEVER, Gaps, Low, Lows, State
from .gaps import gaps_after, is_served
from .lows import lowered, lows_of, with_newest
from .queued_charges import QueuedCharge


def units_given_back(quota: TokenBucket, state: State, base: float, charge: QueuedCharge) -> tuple[float, Gaps, Lows]:
    """Level, gaps and lows without the units of a charge whose time has come; the gaps above it sink too.

    If a sinking gap would make somebody wait longer, nothing is given back.
    """
    level, last, _, gaps, record, _ = state
    low = _low_since(quota, state, charge)
    back = min(charge.units, low, level)
    above = [(start, size) for start, size in gaps if start >= charge.end]
    if back <= 0.0 or not all(is_served(quota, gap, base - last, back, level - back) for gap in above):
        return level, gaps, lows_of(record)
    sunk = tuple([(start - back, size) if start >= charge.end else (start, size) for start, size in gaps])
    return level - back, gaps_after(quota, sunk, 0.0), _lows_given_back(lows_of(record), charge.slot, low, back)


def _low_since(quota: TokenBucket, state: State, charge: QueuedCharge) -> float:
    """How much of a charge can be given back.

    In a gap, the charge did not raise the level, which was already as high as its end.
    """
    _, _, _, _, record, _ = state
    if not record:
        return _low_unrecorded(quota, state, charge)
    (start, _, _), lows = record[0], with_newest(state)
    slot, size = charge.slot, charge.end - charge.start
    if slot < start:  # not recorded yet
        first_time, first_low = lows[0]
        left = size - (max(start, first_time) - slot) * quota.limit if quota.slow_rate == quota.limit else 0.0
        return max(min(left, first_low), 0.0)
    low = 0.0
    for time, next_low in lows:
        if time == slot:
            return next_low
        if time > slot:
            if quota.slow_rate != quota.limit:
                return low
            return max(low, min(next_low, min(low, charge.below_at_slot) + size - (time - slot) * quota.limit))
        low = next_low
    has_newest = len(lows) < len(record)  # none was added for the newest charge
    return low if has_newest else 0.0


def _low_unrecorded(quota: TokenBucket, state: State, charge: QueuedCharge) -> float:
    """``_low_since`` if nothing is recorded, not even what may have been booked ahead since.

    Without such bookings, an older charge has drained by no more than the time between it and the newest one.
    """
    level: float = state[0]
    last, slot = state[1], charge.slot
    if slot > last:
        return level if level == charge.end else 0.0
    if level > quota.burst_level:
        return 0.0
    if slot == last:
        return level
    size = charge.end - charge.start
    left = size - (last - slot) * quota.limit if quota.slow_rate == quota.limit else 0.0
    return max(min(left, level), 0.0)


def _lows_given_back(lows: Lows, slot: float, low: float, back: float) -> Lows:
    """The lows after a charge at ``slot``, which could give back ``low``, has given back ``back``."""
    after: list[Low] = []
    most = NEVER
    for time, before in reversed(lows):
        most = min(most, before - back if time >= slot else low - back, before)
        after.append((time, most))
    newest = [(time, max(most, 0.0)) for time, most in after[:1]]
    return (*lowered(tuple(after[:0:-1])), *newest)
