"""How the level of a token bucket drains, how one more charge raises it, and when there is room for that charge.

The level is scaled by the period, as in a state. Nothing here knows about gaps.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ..quotas import TokenBucket
from .state import NEVER, NEVER_US, Outlook, Taken


def scaled_cost(quota: TokenBucket, cost: float) -> float:
    """A cost scaled by the period, rounded up to a whole number so that sums are exact, except for a float's noise."""
    scaled = cost * quota.period_us
    if scaled % 1.0 == 0.0:
        return scaled
    nearest = float(math.floor(scaled + 0.5))
    return nearest if abs(scaled - nearest) <= nearest * 1e-12 else float(math.ceil(scaled))


def admit(quota: TokenBucket, level: float, elapsed: float, cost: float) -> float | None:
    """The level after taking ``cost`` at once; ``None`` if it does not fit. Without gaps, and at one rate."""
    left, scaled = level - elapsed * quota.limit, cost * quota.period_us
    if cost != 1 and scaled % 1.0:
        scaled = scaled_cost(quota, cost)
    if left < 0.0:
        left = 0.0
    return left + scaled if left <= quota.burst_level - scaled else None  # None for NaN, too


def drained(quota: TokenBucket, level: float, elapsed: float) -> float:
    """The level after ``elapsed`` microseconds: above ``burst_floor`` it drains at the full rate, below it slowly."""
    if elapsed <= 0.0:
        return level
    if level <= quota.burst_floor or quota.slow_rate == quota.limit:
        left = level - elapsed * quota.slow_rate
        return left if left > 0.0 else 0.0
    above = (level - quota.burst_floor) / quota.limit
    if elapsed <= above:
        return max(level - elapsed * quota.limit, quota.burst_floor)
    return max(quota.burst_floor - (elapsed - above) * quota.slow_rate, 0.0)


def drain_time(quota: TokenBucket, level: float, target: float) -> float:
    """Microseconds, rounded up, until the level is down to ``target``, up to a rounding error."""
    if level <= target:
        return 0.0
    if target >= quota.burst_floor or quota.slow_rate == quota.limit:
        return -((target - level) / quota.limit // 1.0)
    fast = max(level - quota.burst_floor, 0.0) / quota.limit
    return float(math.ceil(fast + (min(level, quota.burst_floor) - target) / quota.slow_rate))


def drain_wait(quota: TokenBucket, level: float, elapsed: float, target: float) -> float:
    """The exact least whole number of microseconds from now until the level is down to ``target``."""
    if level <= target:
        return 0.0
    wait_us = drain_time(quota, level, target) - elapsed
    if wait_us >= NEVER_US:
        return NEVER
    while drained(quota, level, elapsed + wait_us) > target:
        wait_us += 1.0
    while wait_us > 0.0 and drained(quota, level, elapsed + (wait_us - 1.0)) <= target:
        wait_us -= 1.0
    return wait_us


def simple_wait(quota: TokenBucket, level: float, elapsed: float, target: float) -> float:
    """``drain_wait`` of a bucket that drains at one rate, whose level is above the target now."""
    limit = quota.limit
    until = elapsed - ((target - (level - elapsed * limit)) / limit // 1.0)
    if level - until * limit <= target < level - (until - 1.0) * limit and until < NEVER_US:
        return until - elapsed
    return drain_wait(quota, level, elapsed, target)


def book(
    quota: TokenBucket, level: float, elapsed: float, cost: float, max_wait_us: float
) -> tuple[float, float] | None:
    """The level after taking ``cost`` at the earliest slot, and the microseconds until that slot; at one rate.

    ``None`` if ``take`` has to decide: the slot is too far away, the cost is above the burst, or other charges were
    booked in this microsecond. Nothing is recorded for settlements.
    """
    after = admit(quota, level, elapsed, cost)
    if after is not None:
        return after, 0.0
    limit, scaled = quota.limit, scaled_cost(quota, cost)
    target = quota.burst_level - scaled
    if not target >= 0.0:
        return None
    wait_us = simple_wait(quota, level, elapsed, target)
    if wait_us > max_wait_us or wait_us == NEVER:
        return None
    left = level - (elapsed + wait_us) * limit
    booked = (left if left > 0.0 else 0.0) + scaled + wait_us * limit
    return None if elapsed <= 0.0 and booked <= quota.burst_level else (booked, wait_us)


def units_at(quota: TokenBucket, level: float) -> float:
    """The whole units that fit above a level, by the rules of ``take``, however the division rounds."""
    units = (quota.burst_level - level) / quota.period_us // 1.0
    if level > quota.burst_level - units * quota.period_us:
        units -= 1.0
    return units if units > 0.0 else 0.0


def available(quota: TokenBucket, level: float) -> tuple[float, float]:
    """The whole units that fit above the current level, and the microseconds until one more does, at one rate."""
    period_us, burst_level, limit = quota.period_us, quota.burst_level, quota.limit
    units = (burst_level - level) / period_us // 1.0
    enough = burst_level - (units + 1.0) * period_us
    if level > enough + period_us:
        units -= 1.0
        enough += period_us
    if enough < 0.0:
        return units, 0.0
    more_us = -((enough - level) / limit // 1.0)
    if level - more_us * limit <= enough < level - (more_us - 1.0) * limit:
        return units, more_us
    return units, min(drain_wait(quota, level, 0.0, enough), NEVER_US)


def refused(quota: TokenBucket, level: float, elapsed: float, cost: float) -> Taken | None:
    """The refusal of a cost that ``admit`` does not admit now; ``None`` for one that may never conform."""
    target = quota.burst_level - scaled_cost(quota, cost)
    if target < 0.0:
        return None
    return None, simple_wait(quota, level, elapsed, target), simple_outlook(quota, level, elapsed)


def simple_outlook(quota: TokenBucket, level: float, elapsed: float) -> Outlook:
    """``outlook`` of a bucket without gaps that drains at one rate and had this level ``elapsed`` microseconds ago."""
    limit, period_us, burst_level = quota.limit, quota.period_us, quota.burst_level
    left = level - elapsed * limit
    if left < 0.0:
        left = 0.0
    units = (burst_level - left) / period_us // 1.0
    if left > burst_level - units * period_us:
        units -= 1.0
    if units < 0.0:
        units = 0.0
    enough, more_us = burst_level - (units + 1.0) * period_us, 0.0
    if enough >= 0.0:
        until = elapsed - ((enough - left) / limit // 1.0)
        more_us = until - elapsed
        if not level - until * limit <= enough < level - (until - 1.0) * limit:
            more_us = min(drain_wait(quota, level, elapsed, enough), NEVER_US)
    return units, more_us, -(-left / limit // 1.0)
