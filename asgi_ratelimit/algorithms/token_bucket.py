"""The token bucket: a leaky bucket as a meter.

The core of the state is the level as it was at the time ``last``, scaled by the period: a cost of 1 is ``period_us``,
and the bucket drains by ``limit`` for each microsecond. No interval has to be rounded, at any rate.

The level is also the length of a queue that runs off at the full rate. Each admitted unit has its own piece of the
queue, which runs off no earlier than the unit's slot, and at most ``burst_level`` after it. The units of any interval
of length T therefore lie on ``T * limit + burst_level`` of the queue, and are at most ``T * limit / period + burst``:
that is the promise. Units that are given back leave a gap ``(start, size)`` in the queue, in levels as of ``last``.
The next charge that fits takes it. A gap at the end of the queue is cut off.
"""

from __future__ import annotations

import math

from ..decision import SettledCharge
from ..quotas import TokenBucket
from .queue_gaps import earliest_gap, gap_at, gaps_after, gaps_without, place_in_gap, units_in_gaps, with_gap
from .state import NEVER, NEVER_US, Outlook, State, Taken


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return (0.0, now, birth, (), (), b"")


def rebased(quota: TokenBucket, state: State, now: float, birth: int = 0) -> State:
    """The state as if it had last changed now."""
    return (state[0], now, birth, state[3], (), state[5])


def take(
    quota: TokenBucket,
    state: State,
    now: float,
    cost: float,
    max_wait_us: float,
    min_wait_us: float = 0.0,
    may_settle: bool = False,
) -> Taken:
    """Take ``cost`` units at the earliest slot from ``now + min_wait_us`` on, or none if it is too far away.

    The slot is the first gap that the cost fits into, or else the end of the queue. Until its slot, a booked bucket is
    held so full that it drains back to the right level at that moment. A cost above the burst never conforms when rate
    limiting; when pacing it waits for an empty bucket.
    """
    level, last, generation, gaps, lows, older = state
    limit, scaled = quota.limit, cost * quota.period_us
    target, wait_us, elapsed = quota.burst_level - scaled, min_wait_us, now - last
    is_simple = elapsed >= 0.0 and quota.slow_rate == limit and not gaps and not min_wait_us
    left = level - elapsed * limit if is_simple else drained(quota, level, elapsed + min_wait_us)
    if left < 0.0:
        left = 0.0
    if cost > quota.burst:
        if max_wait_us <= 0.0:
            return None, NEVER, outlook(quota, state, now)
        target = 0.0
    if left > target:
        wait_us = (_simple_wait if is_simple else drain_wait)(quota, level, elapsed, target)
    if gaps:
        wait_us = earliest_gap(quota, gaps, elapsed, cost, wait_us, min_wait_us)
    if wait_us > max_wait_us or wait_us == NEVER:
        return None, wait_us, _simple_outlook(quota, level, elapsed) if is_simple else outlook(quota, state, now)
    if is_simple and wait_us == 0.0:
        left += scaled
        return (left, now, generation, (), lows, older), 0.0, _simple_outlook(quota, left, 0.0)
    if wait_us > 0.0:
        left = drained(quota, level, elapsed + wait_us)
    since = now if elapsed > 0.0 else last
    ahead = now + wait_us - since
    if gaps:
        after = _booked_in_gap(quota, state, now, cost, wait_us)
        if after is not None:
            return after, wait_us, outlook(quota, after, now)
        gaps = gaps_after(quota, gaps, since - last)
    left += scaled
    after = (left + ahead * limit if ahead > 0.0 else left, since, generation, gaps, lows, older)
    return after, wait_us, outlook(quota, after, now)


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
    """Microseconds, rounded up, until the level is down to ``target``, but for what rounding may add or take away."""
    if level <= target:
        return 0.0
    if target >= quota.burst_floor or quota.slow_rate == quota.limit:
        return -((target - level) / quota.limit // 1.0)
    fast = max(level - quota.burst_floor, 0.0) / quota.limit
    return float(math.ceil(fast + (min(level, quota.burst_floor) - target) / quota.slow_rate))


def drain_wait(quota: TokenBucket, level: float, elapsed: float, target: float) -> float:
    """The least whole number of microseconds from now on after which the level is down to ``target``, exactly."""
    wait_us = drain_time(quota, level, target) - elapsed
    if wait_us >= NEVER_US:
        return NEVER
    while drained(quota, level, elapsed + wait_us) > target:
        wait_us += 1.0
    while wait_us > 0.0 and drained(quota, level, elapsed + (wait_us - 1.0)) <= target:
        wait_us -= 1.0
    return wait_us


def outlook(quota: TokenBucket, state: State, now: float) -> Outlook:
    """The whole units that could be taken now one by one, and the microseconds until one more, and until all.

    One more is counted at the end of the queue: where units were given back, it may come even sooner.
    """
    level, last, _, gaps, _, _ = state
    elapsed = now - last
    left = drained(quota, level, elapsed)
    units = units_at(quota, left)
    enough, more_us = quota.burst_level - (units + 1.0) * quota.period_us, 0.0
    if enough >= 0.0:
        more_us = min(drain_wait(quota, level, elapsed, enough), NEVER_US)
    if gaps:
        units += sum(units_in_gaps(quota, gaps, elapsed))
    return units, more_us, (-elapsed if elapsed < 0.0 else 0.0) + drain_time(quota, left, 0.0)


def _simple_wait(quota: TokenBucket, level: float, elapsed: float, target: float) -> float:
    """``drain_wait`` of a bucket that drains at one rate, whose level is above the target now."""
    limit = quota.limit
    until = elapsed - ((target - (level - elapsed * limit)) / limit // 1.0)
    if level - until * limit <= target < level - (until - 1.0) * limit and until < NEVER_US:
        return until - elapsed
    return drain_wait(quota, level, elapsed, target)


def _simple_outlook(quota: TokenBucket, level: float, elapsed: float) -> Outlook:
    """``outlook`` of a bucket with this level ``elapsed`` ago, without gaps, that drains at one rate."""
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


def units_at(quota: TokenBucket, level: float) -> float:
    """The whole units that fit above a level, on the terms of ``take``, whatever the division rounds."""
    units = (quota.burst_level - level) / quota.period_us // 1.0
    if level > quota.burst_level - units * quota.period_us:
        units -= 1.0
    return units if units > 0.0 else 0.0


def most_at_once(quota: TokenBucket, state: State, now: float) -> float:
    """The most whole units that one take could have now: those at the end of the queue, or in the largest gap."""
    level, last, _, gaps, _, _ = state
    units = units_at(quota, drained(quota, level, now - last))
    return max([units, *units_in_gaps(quota, gaps, now - last)]) if gaps else units


def _booked_in_gap(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> State | None:
    """The state after taking ``cost`` in the first gap that it fits into at its slot; ``None`` where there is none."""
    level, last, generation, gaps, lows, older = state
    in_gap = place_in_gap(quota, state, now, cost, wait_us)
    if in_gap is None:
        return None
    since = now if now > last else last
    gaps = gaps_without(quota, gaps, since - last, in_gap, cost * quota.period_us)
    return (drained(quota, level, since - last), since, generation, gaps, lows, older)


def place(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> float:
    """Where in the queue ``take`` puts this cost: the level below it, as of now (or ``last``, if that lies ahead)."""
    in_gap = place_in_gap(quota, state, now, cost, wait_us) if state[3] else None
    if in_gap is not None:
        return in_gap[1]
    after, _, _ = take(quota, state, now, cost, NEVER, wait_us)
    assert after is not None
    level: float = after[0]
    return level - cost * quota.period_us


def give_back(quota: TokenBucket, state: State, now: float, settled: SettledCharge) -> State:
    """The state without what was charged too much.

    What has run off cannot be given back: it is available again by now. The rest becomes a gap, or is cut off the end.
    """
    level, last, generation, gaps, lows, older = state
    base = now if now > last else last
    at, since, cost, units = settled.place, settled.since_us, settled.charge.cost, settled.charge.cost - settled.actual
    level, gaps = drained(quota, level, base - last), gaps_after(quota, gaps, base - last)
    start, size = gap_at(quota, (at + (cost - units) * quota.period_us, units * quota.period_us), base - since)
    if size <= 0.0 or start >= level:
        return (level, base, generation, gaps, lows, older)
    if start + size < level:
        return (level, base, generation, with_gap(gaps, start, size), lows, older)
    level = start
    while gaps and gaps[-1][0] + gaps[-1][1] >= level:
        level = min(level, gaps[-1][0])
        gaps = gaps[:-1]
    return (level, base, generation, gaps, lows, older)


def debit(quota: TokenBucket, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end of the queue, whether they conform or not."""
    level, last, generation, gaps, lows, older = state
    base = max(now, last)
    level = drained(quota, level, base - last) + units * quota.period_us
    return (level, base, generation, gaps_after(quota, gaps, base - last), lows, older)


def reset_us(quota: TokenBucket, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    level, last, _, _, _, _ = state
    return (last - now if last > now else 0.0) + drain_time(quota, drained(quota, level, now - last), 0.0)


def booked_ahead(quota: TokenBucket, state: State, now: float) -> float:
    """The units that are booked for later: what lies above a full burst in the queue, without its gaps."""
    level, last, _, gaps, _, _ = state
    ahead = max(drained(quota, level, now - last) - quota.burst_level, 0.0)
    for start, size in gaps_after(quota, gaps, now - last):
        ahead -= max(start + size - max(start, quota.burst_level), 0.0)
    return max(ahead, 0.0) / quota.period_us


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    level, last, generation, _, _, _ = state
    return (level / replicas, last, generation, (), (), b"")


def used(quota: TokenBucket, state: State, now: float) -> float:
    """The units that have not run off yet."""
    free = sum([size for _, size in gaps_after(quota, state[3], now - state[1])])
    return (drained(quota, state[0], now - state[1]) - free) / quota.period_us
