"""The token bucket: a leaky bucket as a meter.

The core is the level as it was left at the time ``last``, scaled by the period, so that a cost of 1 is ``period_us``
and the drain is ``limit`` for each microsecond: no rounding of intervals is needed, at no rate.

Think of the level as a tape that runs towards 0 as time goes by, at the full rate. Every unit that was admitted lies
on its own piece of the tape, not before its time, and ends at most ``cap`` behind it. So the units of any interval of
length T lie on ``T * limit + cap`` of tape, and are at most ``T * limit / period + burst``: that is the promise. A
unit that is given back leaves a hole ``(start, size)``, in levels as of ``last``, and whoever fits into it on the same
terms may have it. A hole at the end of the tape is cut off.
"""

from __future__ import annotations

import math

from ..quotas import TokenBucket
from .state import MAX_HOLES, NEVER_US, Hole, Holes, State, era_of


def drained(quota: TokenBucket, level: float, elapsed: float) -> float:
    """The level after ``elapsed`` microseconds: what is above the line drains at the full rate, the rest slowly."""
    if elapsed <= 0.0:
        return level
    if level <= quota.line or quota.slow == quota.limit:
        left = level - elapsed * quota.slow
        return left if left > 0.0 else 0.0
    above = (level - quota.line) / quota.limit
    if elapsed <= above:
        return max(level - elapsed * quota.limit, quota.line)
    return max(quota.line - (elapsed - above) * quota.slow, 0.0)


def drain_time(quota: TokenBucket, level: float, target: float) -> float:
    """Microseconds, rounded up, until the level is down to ``target``."""
    if level <= target:
        return 0.0
    if target >= quota.line or quota.slow == quota.limit:
        return float(math.ceil((level - target) / quota.limit))
    fast = max(level - quota.line, 0.0) / quota.limit
    return float(math.ceil(fast + (min(level, quota.line) - target) / quota.slow))


def fresh(now: float) -> State:
    """The state of a bucket that was never used."""
    return (0.0, now, era_of(now), (), ())


def healed(quota: TokenBucket, state: State, now: float) -> State:
    """The state as if it had been last changed now."""
    return (state[0], now, era_of(now), state[3], state[4])


def wait(quota: TokenBucket, state: State, now: float, cost: float, soonest: float = 0.0) -> float:
    """The least whole number w of microseconds from ``soonest`` on, such that ``cost`` conforms at ``now + w``.

    At the end of the tape that is when the level leaves room for the cost, whatever was rounded.
    """
    level, last, _, holes, _ = state
    target = quota.cap - cost * quota.period_us
    if target < 0.0:
        target = 0.0
    found = soonest
    if drained(quota, level, now + soonest - last) > target:
        found = _end_wait(quota, level, now - last, target, soonest)
    for hole in holes:
        found = min(found, _hole_wait(quota, hole, now - last, cost, soonest))
    return found


def _end_wait(quota: TokenBucket, level: float, elapsed: float, target: float, soonest: float) -> float:
    found = drain_time(quota, level, target) - elapsed
    if found >= NEVER_US:
        return math.inf
    while drained(quota, level, elapsed + found) > target:
        found += 1.0
    while found > soonest and drained(quota, level, elapsed + (found - 1.0)) <= target:
        found -= 1.0
    return found


def _hole_wait(quota: TokenBucket, hole: Hole, elapsed: float, cost: float, soonest: float) -> float:
    """The least w from ``soonest`` on such that ``cost`` conforms inside a hole, ``elapsed + w`` after ``last``."""
    earliest = max(elapsed + soonest, 0.0)
    found = max(earliest, float(math.ceil((hole[0] + cost * quota.period_us - quota.cap) / quota.limit)))
    if not _fits(quota, hole, found, cost):
        found += 1.0  # whatever was rounded
        if not _fits(quota, hole, found, cost):
            return math.inf
    while found > earliest and _fits(quota, hole, found - 1.0, cost):
        found -= 1.0
    return found - elapsed


def _fits(quota: TokenBucket, hole: Hole, elapsed: float, cost: float) -> bool:
    """Whether ``cost`` conforms inside a hole, ``elapsed`` microseconds after ``last``."""
    start, size = _run(quota, hole, elapsed)
    scaled = cost * quota.period_us
    return elapsed >= 0.0 and scaled <= size and start + scaled <= quota.cap


def _run(quota: TokenBucket, hole: Hole, elapsed: float) -> Hole:
    """A hole after ``elapsed`` microseconds, at the full rate; what has run out of it is gone."""
    start, size = hole
    start -= max(elapsed, 0.0) * quota.limit
    return (start, size) if start >= 0.0 else (0.0, size + start)


def _holes_after(quota: TokenBucket, holes: Holes, elapsed: float) -> Holes:
    return tuple([hole for hole in [_run(quota, hole, elapsed) for hole in holes] if hole[1] > 0.0])


def book(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``, in the first hole that it fits into, else at the end.

    Until its slot the bucket is held so full that it drains back to the right level at that moment.
    """
    level, last, era, holes, ids = state
    since = now if now > last else last
    slot = now + wait_us
    at = _place_in_holes(quota, state, now, cost, wait_us) if holes else None
    holes = _holes_after(quota, holes, since - last)
    if at is not None:
        return (drained(quota, level, since - last), since, era, _filled(holes, at, cost * quota.period_us), ids)
    level = drained(quota, level, slot - last) + cost * quota.period_us
    return (level + (slot - since) * quota.limit if slot > since else level, since, era, holes, ids)


def _place_in_holes(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> float | None:
    """Where ``cost`` lies in the first hole that it fits into at its slot: the level below it, as of the booking."""
    _, last, _, holes, _ = state
    slot = now + wait_us
    for hole in holes:
        if _fits(quota, hole, slot - last, cost):
            return _run(quota, hole, slot - last)[0] + (slot - max(now, last)) * quota.limit
    return None


def _filled(holes: Holes, at: float, scaled: float) -> Holes:
    """The holes without a piece of the tape, which lies in one of them."""
    left = []
    for start, size in holes:
        if start <= at < start + size:
            pieces = ((start, at - start), (at + scaled, start + size - (at + scaled)))
            left.extend([piece for piece in pieces if piece[1] > 0.0])
        else:
            left.append((start, size))
    return tuple(left[:MAX_HOLES])


def take_at_once(
    quota: TokenBucket, state: State, now: float, cost: float
) -> tuple[State | None, int, float, float] | None:
    """The state after taking ``cost`` now, and its outlook, in one go; ``None`` where it is not as simple as that.

    This is ``wait``, ``book`` and ``outlook`` for what nearly all requests meet: room at the end of the tape; or, with
    no state, for what nearly all refusals are: no unit is left, and the wait is for the next, so it is that of the
    outlook.
    """
    level, last, era, holes, ids = state
    if holes or last > now or quota.slow != quota.limit or cost > quota.burst:
        return None
    limit, period, cap, elapsed = quota.limit, quota.period_us, quota.cap, now - last
    left, scaled = level - elapsed * limit, cost * period
    if left < 0.0:
        left = 0.0
    target = cap - scaled
    if left > target:
        wait_us = -((target - left) / limit // 1.0)
        until = elapsed + wait_us
        if cost == 1.0 and left <= cap and level - until * limit <= target < level - (until - 1.0) * limit:
            return None, 0, wait_us, -(-left / limit // 1.0)
        return None
    left += scaled
    units = int((cap - left) / period)
    enough = cap - (units + 1) * period
    more_us = -((enough - left) / limit // 1.0)
    if left > cap - units * period or not left - more_us * limit <= enough < left - (more_us - 1.0) * limit:
        return None  # whatever was rounded, ``outlook`` gets it right
    return (left, now, era, holes, ids), units, more_us if enough >= 0.0 else 0.0, -(-left / limit // 1.0)


def place(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> float:
    """Where on the tape ``book`` puts this cost: the level below it, as of now (or ``last``, if that lies ahead)."""
    at = _place_in_holes(quota, state, now, cost, wait_us)
    if at is not None:
        return at
    level: float = book(quota, state, now, cost, wait_us)[0]
    return level - cost * quota.period_us


def give_back(
    quota: TokenBucket, state: State, now: float, since: float, at: float, cost: float, units: float
) -> State:
    """The state without the last ``units`` of a ``cost`` that was booked at the time ``since``, ``at`` its place.

    What of its tape has run out cannot be given back: it is full again by now. The rest is a hole, or cut off.
    """
    level, last, era, holes, ids = state
    base = now if now > last else last
    level, holes = drained(quota, level, base - last), _holes_after(quota, holes, base - last)
    start, size = _run(quota, (at + (cost - units) * quota.period_us, units * quota.period_us), base - since)
    if size <= 0.0 or start >= level:
        return (level, base, era, holes, ids)
    if start + size < level:
        return (level, base, era, _with_hole(holes, start, size), ids)
    level = start
    while holes and holes[-1][0] + holes[-1][1] >= level:
        level = min(level, holes[-1][0])
        holes = holes[:-1]
    return (level, base, era, holes, ids)


def _with_hole(holes: Holes, start: float, size: float) -> Holes:
    """The holes and one more, joined with those that it touches; what is too many is not remembered."""
    end, apart = start + size, []
    for hole in holes:
        if hole[0] + hole[1] < start or hole[0] > end:
            apart.append(hole)
        else:
            start, size = min(start, hole[0]), size + hole[1]
    return tuple(sorted([*apart, (start, size)])[:MAX_HOLES])


def owe(quota: TokenBucket, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end of the tape, whether they conform or not."""
    level, last, era, holes, ids = state
    base = max(now, last)
    level = drained(quota, level, base - last) + units * quota.period_us
    return (level, base, era, _holes_after(quota, holes, base - last), ids)


def reset_us(quota: TokenBucket, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    level, last, _, _, _ = state
    return (last - now if last > now else 0.0) + drain_time(quota, drained(quota, level, now - last), 0.0)


def left(quota: TokenBucket, state: State, now: float) -> float:
    """The whole units that could be taken now, one by one."""
    level, last, _, holes, _ = state
    units = _units_at(quota, drained(quota, level, now - last))
    return units + _units_in_holes(quota, holes, now - last) if holes else units


def _units_at(quota: TokenBucket, level: float) -> float:
    """The whole units that a level leaves room for, on the terms of ``wait``, whatever the division rounds."""
    units = (quota.cap - level) / quota.period_us // 1.0
    return max(units if level <= quota.cap - units * quota.period_us else units - 1.0, 0.0)


def _units_in_holes(quota: TokenBucket, holes: Holes, elapsed: float) -> float:
    units = 0.0
    for start, size in _holes_after(quota, holes, elapsed):
        units += math.floor(max(min(size, quota.cap - start), 0.0) / quota.period_us)
    return units


def outlook(quota: TokenBucket, state: State, now: float) -> tuple[float, float, float]:
    """The whole units that could be taken now, and the microseconds until there is one more, and until all are.

    One more at the end of the tape, that is: where something was given back, there may be more even sooner.
    """
    level, last, _, holes, _ = state
    elapsed = now - last
    left_now = drained(quota, level, elapsed)
    units, more_us = _units_at(quota, left_now), 0.0
    enough = quota.cap - (units + 1.0) * quota.period_us
    if enough >= 0.0:
        more_us = min(_end_wait(quota, level, elapsed, enough, 0.0), NEVER_US)
    if holes:
        units += _units_in_holes(quota, holes, elapsed)
    return units, more_us, (-elapsed if elapsed < 0.0 else 0.0) + drain_time(quota, left_now, 0.0)


def waiting(quota: TokenBucket, state: State, now: float) -> float:
    """The units that are booked for later: what of the tape lies above a full burst, without its holes."""
    level, last, _, holes, _ = state
    ahead = max(drained(quota, level, now - last) - quota.cap, 0.0)
    for start, size in _holes_after(quota, holes, now - last):
        ahead -= max(start + size - max(start, quota.cap), 0.0)
    return max(ahead, 0.0) / quota.period_us


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    level, last, era, _, _ = state
    return (level / replicas, last, era, (), ())


def booked(quota: TokenBucket, state: State, now: float) -> float:
    """The units whose tape has not run out yet."""
    free = sum([size for _, size in _holes_after(quota, state[3], now - state[1])])
    return (drained(quota, state[0], now - state[1]) - free) / quota.period_us
