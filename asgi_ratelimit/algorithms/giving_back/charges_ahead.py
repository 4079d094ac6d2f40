"""Units of a charge of a token bucket whose slot lies ahead are given back: a gap opens, or the queue ends earlier.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from ...quotas import TokenBucket
from ..state import NEVER, NOISE, Gaps, Low, Lows, State
from ..token_bucket_level import drained
from .gaps import opens_no_later, with_gap
from .lows import NO_LOW, lowered, lows_before, lows_of
from .queued_charges import QueuedCharge


def slot_given_back(quota: TokenBucket, state: State, base: float, charge: QueuedCharge) -> tuple[float, Gaps, Lows]:
    """Level, gaps and lows without the units of a charge whose slot lies ahead: the last ones, if some of it stays.

    Their piece of the queue becomes a gap, or the end of the queue moves back.
    """
    level, last, _, gaps, record, _ = state
    is_even = quota.slow_rate == quota.limit
    start, bottom, rest = charge.end - charge.units, drained(quota, charge.below, charge.passed), 0.0
    if charge.units < charge.scaled:
        bottom, rest = start, start - (charge.slot - last) * quota.limit
    elif charge.slot == charge.slot_us and not is_even:
        start = min(start, charge.below - charge.passed * quota.limit)  # the slow part of its wait is free as well
    start = max(start, (base - last) * quota.limit)  # what has run off is gone
    if charge.end <= start or (not is_even and charge.end > level * (1.0 + NOISE)):
        return level, gaps, lows_of(record)
    if charge.end < level:
        return level, with_gap(gaps, start, charge.end - start), lows_of(record)
    level, gaps = _cut_off(quota, gaps, base - last, bottom)
    return level, gaps, _lows_without_slot(quota, state, charge, level, rest)


def _cut_off(quota: TokenBucket, gaps: Gaps, elapsed: float, level: float) -> tuple[float, Gaps]:
    """The level and the gaps of a queue that is cut off at ``level``: gaps at its new end are cut off as well.

    A gap stays if a charge that fits into it would find room later at the end of the queue.
    """
    while gaps:
        start, size = gaps[-1]
        if start + size < level:
            break
        if not opens_no_later(quota, gaps[-1], elapsed, min(level, start)):
            return start + size, gaps
        level, gaps = min(level, start), gaps[:-1]
    return level, gaps


def _lows_without_slot(quota: TokenBucket, state: State, charge: QueuedCharge, level: float, rest: float) -> Lows:
    """The lows after the charge at the latest slot was given back, and the queue ends at ``level``.

    If some of the charge is left, ``rest`` is the level at its slot. Other charges may be booked for times up to that
    slot, and for later times too if it is in a gap, or the factor is below 1.
    """
    _, last, _, _, record, _ = state
    lows, slot, slot_us = lows_of(record), charge.slot, charge.slot_us
    newest, _ = lows[-1] if lows else NO_LOW
    if newest > slot_us and (slot != slot_us or quota.slow_rate != quota.limit):
        return _capped(quota, lows, slot_us, level, last)
    earlier = lows_before(lows, slot_us)
    newest, _ = earlier[-1] if earlier else NO_LOW
    if not record or (rest > 0.0 and newest >= slot):
        return earlier
    if rest > 0.0:
        return (*earlier, (slot, rest))
    latest = max(min(slot, last + level / quota.limit // 1.0), last)
    return earlier if newest >= latest else (*earlier, (latest, drained(quota, level, latest - last)))


def _capped(quota: TokenBucket, lows: Lows, slot: float, level: float, last: float) -> Lows:
    """The lows, with those from ``slot`` on no higher than a queue that ends at ``level``; the newest one stays."""
    after: list[Low] = []
    most = NEVER
    for time, low in reversed(lows):
        most = min(most, low, drained(quota, level, time - last) if time >= slot else low)
        after.append((time, most))
    return (*lowered(tuple(after[:0:-1])), *after[:1])
