"""The token bucket: a leaky bucket as a meter.

The core is the level as it was left at the time ``last``, scaled by the period, so that a cost of 1 is ``period_us``
and the drain is ``limit`` for each microsecond: no rounding of intervals is needed, at no rate.

Think of the level as a tape that runs towards 0 as time goes by, at the full rate. Every unit that was admitted lies
on its own piece of the tape, not before its time, and ends at most ``cap`` behind it. So the units of any interval of
length T lie on ``T * limit + cap`` of tape, and are at most ``T * limit / period + burst``: that is the promise. A
unit that is given back leaves a hole ``(start, end)``, in levels as of ``last``, and whoever fits into it on the same
terms may have it. A hole at the end of the tape is cut off.
"""

from __future__ import annotations

import math

from ..quotas import TokenBucket
from ._state import MAX_HOLES, NEVER_US, Holes, State, era_of


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
    if holes:
        for hole in _now(quota, state, now)[1]:
            found = min(found, _fit(quota, hole, max(last - now, 0.0), cost, soonest)[0])
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


def _now(quota: TokenBucket, state: State, now: float) -> tuple[float, Holes]:
    """The level and the holes as of now, or of ``last`` where that lies ahead; the holes run at the full rate."""
    level, last, _, holes, _ = state
    if not holes:
        return drained(quota, level, now - last), holes
    run = max(now - last, 0.0) * quota.limit
    return drained(quota, level, now - last), tuple([(max(p - run, 0.0), q - run) for p, q in holes if q > run])


def _fit(
    quota: TokenBucket, hole: tuple[float, float], ahead: float, cost: float, soonest: float
) -> tuple[float, float]:
    """When ``cost`` conforms inside a hole, from ``soonest`` on, and where on the tape it then lies.

    ``ahead`` is how far the tape's 0 lies ahead of now: above 0 only where the clock fell back.
    """
    start, end = hole
    scaled = cost * quota.period_us
    at = max(soonest, ahead + float(math.ceil((start + scaled - quota.cap) / quota.limit)))
    reached = (at - ahead) * quota.limit
    start = max(start, reached)
    fits = start + scaled <= end and start + scaled - quota.cap <= reached
    return (at if fits else math.inf), start


def book(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``, in the first hole that it fits into, else at the end.

    Until its slot the bucket is held so full that it drains back to the right level at that moment.
    """
    level, last, era, holes, ids = state
    since = now if now > last else last
    slot = now + wait_us
    if holes:
        level_now, holes = _now(quota, state, now)
        for hole in holes:
            at, start = _fit(quota, hole, since - now, cost, wait_us)
            if at == wait_us:
                return (level_now, since, era, _filled(holes, hole, start, cost * quota.period_us), ids)
    level = drained(quota, level, slot - last) + cost * quota.period_us
    return (level + (slot - since) * quota.limit if slot > since else level, since, era, holes, ids)


def _filled(holes: Holes, hole: tuple[float, float], start: float, scaled: float) -> Holes:
    pieces = [(hole[0], start), (start + scaled, hole[1])]
    rest = [*(other for other in holes if other != hole), *(piece for piece in pieces if piece[0] < piece[1])]
    return tuple(sorted(rest)[:MAX_HOLES])


def place(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> float:
    """Where on the tape ``book`` puts this cost: the level below it, as of now (or ``last``, if that lies ahead)."""
    since = max(now, state[1])
    for hole in _now(quota, state, now)[1]:
        at, start = _fit(quota, hole, since - now, cost, wait_us)
        if at == wait_us:
            return start
    level: float = book(quota, state, now, cost, wait_us)[0]
    return level - cost * quota.period_us


def give_back(
    quota: TokenBucket, state: State, now: float, since: float, at: float, cost: float, units: float
) -> State:
    """The state without the last ``units`` of a ``cost`` that was booked at the time ``since``, ``at`` its place.

    What of its tape has run out cannot be given back: it is full again by now. The rest is a hole, or cut off.
    """
    _, last, era, _, ids = state
    level, holes = _now(quota, state, now)
    base = now if now > last else last
    run = (base - since) * quota.limit
    end = at + cost * quota.period_us - run
    start = max(at + (cost - units) * quota.period_us - run, 0.0)
    if start >= min(end, level):
        return (level, base, era, holes, ids)
    if end < level:
        return (level, base, era, _with_hole(holes, start, end), ids)
    level = start
    while holes and holes[-1][1] >= level:
        level = min(level, holes[-1][0])
        holes = holes[:-1]
    return (level, base, era, holes, ids)


def _with_hole(holes: Holes, start: float, end: float) -> Holes:
    """The holes and one more, joined with those that it touches; what is too many is not remembered."""
    apart = []
    for hole in holes:
        if hole[1] < start or hole[0] > end:
            apart.append(hole)
        else:
            start, end = min(start, hole[0]), max(end, hole[1])
    return tuple(sorted([*apart, (start, end)])[:MAX_HOLES])


def owe(quota: TokenBucket, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end of the tape, whether they conform or not."""
    _, last, era, _, ids = state
    level, holes = _now(quota, state, now)
    return (level + units * quota.period_us, max(now, last), era, holes, ids)


def reset_us(quota: TokenBucket, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    level, last, _, _, _ = state
    return (last - now if last > now else 0.0) + drain_time(quota, drained(quota, level, now - last), 0.0)


def left(quota: TokenBucket, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    level, last, _, holes, _ = state
    most = math.floor((quota.cap - drained(quota, level, now - last)) / quota.period_us)
    if holes:
        widest = max((min(end, quota.cap) - start for start, end in _now(quota, state, now)[1]), default=0.0)
        most = max(most, math.floor(widest / quota.period_us))
    return float(most) if most > 0 else 0.0
