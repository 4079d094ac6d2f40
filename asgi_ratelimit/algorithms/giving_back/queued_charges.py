"""Where a charge lies in the queue of a token bucket: as a settlement remembers it, and as it is found there later.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...decision import SettledCharge
from ...quotas import TokenBucket
from ..state import NEVER, State
from ..token_bucket_level import drained, scaled_cost
from .gaps import place_in_gap
from .lows import busy_period, latest_slot, lows_of


@dataclass(slots=True)
class QueuedCharge:
    """A settled charge in the queue, from ``start`` to ``end``: these are levels as of ``last``. Units are scaled."""

    scaled: float
    """What was charged."""

    units: float
    """What of it is given back."""

    slot_us: float
    """That of the ``SettledCharge``: half a microsecond more than ``slot`` if the slot is not the charge's own."""

    slot: float
    """The time that it was booked for."""

    passed: float
    """The microseconds from its booking to ``last``."""

    below: float
    """The level below it, as of its booking."""

    below_at_slot: float
    """The level below it, as of its slot, if the slot is not its own; otherwise ``NEVER``: no bound."""

    start: float
    end: float


def place(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> tuple[float, float]:
    """The level below this cost where ``take`` puts it, as of now (or ``last``, if that lies ahead), and its slot.

    The level includes what the level of the bucket has sunk by so far, so that later sinking can be taken into account.
    At the end of the queue, slots are in the order of their bookings: the latest booking is above all others, even if
    it may go earlier. A slot in a gap ends in half a microsecond, and so does one that is not the charge's own, so that
    this is known later. With a factor below 1 the slot is always the charge's own: how the level drains until then
    tells where in the queue the charge starts.
    """
    level, last, _, gaps, record, _ = state
    _, _, sunk = busy_period(state)
    in_gap = place_in_gap(quota, state, now, scaled_cost(quota, cost), wait_us) if gaps else None
    left, slot = drained(quota, level, now - last), max(now + wait_us, last)
    if in_gap is not None:
        _, below = in_gap
        return below + sunk, slot + 0.5
    since = max(now, last)
    newest = latest_slot(quota, lows_of(record), since, left) if quota.slow_rate == quota.limit else 0.0
    return left + sunk if left > 0.0 else 0.0, newest + 0.5 if newest > slot else slot


def queued_charge(
    quota: TokenBucket, state: State, settled: SettledCharge, scaled: float, units: float
) -> QueuedCharge:
    """The charge that ``place`` has placed, of which scaled ``units`` are given back, in the queue as it is now."""
    _, _, sunk = busy_period(state)
    slot_us, below = settled.slot_us, settled.place - sunk
    slot = float(math.floor(slot_us))
    ahead, passed = slot - settled.since_us, state[1] - settled.since_us
    below_at_slot, is_own = drained(quota, below, ahead), slot == slot_us
    if is_own or quota.slow_rate == quota.limit:
        end = below_at_slot + scaled + (ahead - passed) * quota.limit
    else:
        end = below + scaled - passed * quota.limit
    if is_own:
        below_at_slot = NEVER
    # by position, because names would cost a tenth of the time of a settlement
    return QueuedCharge(scaled, units, slot_us, slot, passed, below, below_at_slot, end - scaled, end)
