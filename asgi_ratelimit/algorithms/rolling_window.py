"""The rolling window: at most ``limit`` units in any interval of one period, counted in parts.

The core is a tuple of ``(part, count)`` in order, for the parts that may still matter. A part's units go only when its
end has left the window: a unit in part i counts until the start of part ``i + buckets + 1``. So what is counted in
part j covers the whole period before every moment of it, and the promise holds, at the price of one part's delay.
The last part may lie ahead; nothing is booked before it, but in the holes ``(part, units)``.
"""

from __future__ import annotations

import math

from ..quotas import RollingWindow
from .state import State, era_of, units_in, with_units


def index(quota: RollingWindow, now: float) -> float:
    """The number of the part that ``now`` lies in."""
    return float(math.floor(now / quota.part_us))


def fresh(now: float) -> State:
    """The state of a bucket that was never used."""
    return ((), now, era_of(now), (), ())


def healed(quota: RollingWindow, state: State, now: float) -> State:
    """The state as if it had been last changed now: all parts are moved back by whole ones."""
    parts, last, _, holes, ids = state
    back = index(quota, last) - index(quota, now)
    moved = tuple([(at - back, count) for at, count in parts])
    return (moved, now, era_of(now), tuple([(at - back, units) for at, units in holes]), ids)


def used(quota: RollingWindow, state: State, at: float) -> float:
    """The units that count in part ``at``, added up from the last part backward."""
    total = 0.0
    for part, count in reversed(state[0]):
        if part < at - quota.buckets:
            break
        total += count
    return total


def wait(quota: RollingWindow, state: State, now: float, cost: float, soonest: float = 0.0) -> float:
    """The least whole number w of microseconds from ``soonest`` on, such that ``cost`` conforms at ``now + w``."""
    if cost > quota.limit:
        return math.inf
    parts, _, _, holes, _ = state
    first = index(quota, now + soonest)
    found = _end(quota, parts, max(first, parts[-1][0]) if parts else first, cost)
    for at, units in holes:
        if first <= at < found and units >= cost:
            found = at
    return max(soonest, found * quota.part_us - now)


def _end(quota: RollingWindow, parts: tuple[tuple[float, float], ...], first: float, cost: float) -> float:
    """The first part from ``first`` on in which ``cost`` more units conform."""
    total = 0.0
    for part, count in reversed(parts):
        total += count
        if total + cost > quota.limit:
            return max(first, part + quota.buckets + 1.0)
    return first


def book(quota: RollingWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    parts, last, era, holes, ids = state
    taken = index(quota, now + wait_us)
    since = now if now > last else last
    if parts and taken < parts[-1][0]:
        return (parts, since, era, with_units(holes, taken, -cost, index(quota, now)), ids)
    if parts and taken == parts[-1][0]:
        return ((*parts[:-1], (taken, parts[-1][1] + cost)), since, era, holes, ids)
    kept = [(at, count) for at, count in parts if at >= taken - quota.buckets and count > 0.0]
    return ((*kept, (taken, cost)), since, era, holes, ids)


def take_at_once(
    quota: RollingWindow, state: State, now: float, cost: float
) -> tuple[State | None, int, float, float] | None:
    """The state after taking ``cost`` now, and its outlook, in one go; ``None`` where it is not as simple as that.

    This is ``wait``, ``book`` and ``outlook`` where nothing is booked ahead and ``cost`` fits in now.
    """
    parts, last, era, holes, ids = state
    limit, current = quota.limit, now / quota.part_us // 1.0
    oldest = current - quota.buckets
    if holes or last > now or (parts and parts[-1][0] > current) or used(quota, state, current) + cost > limit:
        return None
    if parts and parts[-1][0] == current:
        parts = (*parts[:-1], (current, parts[-1][1] + cost))
    else:
        parts = (*[(at, count) for at, count in parts if at >= oldest and count > 0.0], (current, cost))
    left = (parts, now, era, holes, ids)
    units = (limit - used(quota, left, current)) // 1.0
    more = _end(quota, parts, current, units + 1.0)
    if not 0.0 <= units <= limit - 1.0 or more <= current:
        return None  # ``outlook`` gets it right
    return left, int(units), more * quota.part_us - now, (current + quota.buckets + 1.0) * quota.part_us - now


def place(quota: RollingWindow, state: State, now: float, cost: float, wait_us: float) -> float:
    """The part that ``book`` counts this cost in."""
    return index(quota, now + wait_us)


def give_back(
    quota: RollingWindow, state: State, now: float, since: float, at: float, cost: float, units: float
) -> State:
    """The state without the last ``units`` of a ``cost`` that was booked in the part ``at``, if that still counts."""
    parts, last, era, holes, ids = state
    current, base = index(quota, now), max(now, last)
    if not parts or at > parts[-1][0]:
        return state
    if current <= at < parts[-1][0]:
        return (parts, base, era, with_units(holes, at, units, current), ids)
    lowered = tuple([(part, max(count - units, 0.0) if part == at else count) for part, count in parts])
    return (lowered, base, era, holes, ids)


def owe(quota: RollingWindow, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end, filling as many windows as that takes."""
    parts, last, era, holes, ids = state
    current = index(quota, now)
    at = max(current, parts[-1][0]) if parts else current
    kept = [(part, count) for part, count in parts if part >= at - quota.buckets and part != at]
    had = parts[-1][1] if parts and parts[-1][0] == at else 0.0
    over = units - max(quota.limit - used(quota, state, at), 0.0)
    if over <= 0.0:
        return ((*kept, (at, had + units)), max(now, last), era, holes, ids)
    more = float(math.ceil(over / quota.limit))
    end = at + more * (quota.buckets + 1.0)
    return (((end, over - (more - 1.0) * quota.limit),), max(now, last), era, holes, ids)


def reset_us(quota: RollingWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    parts, last, _, _, _ = state
    if not parts:
        return 0.0
    over = (parts[-1][0] + quota.buckets + 1.0) * quota.part_us
    return max(over, last) - now if over > now else 0.0


def left(quota: RollingWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    current = index(quota, now)
    if state[0] and current < state[0][-1][0]:
        return float(math.floor(units_in(state[3], current)))
    return float(math.floor(max(quota.limit - used(quota, state, current), 0.0)))


def outlook(quota: RollingWindow, state: State, now: float) -> tuple[float, float, float]:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = left(quota, state, now)
    more_us = wait(quota, state, now, units + 1.0) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, state, now)


def waiting(quota: RollingWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all parts to come, without their holes.

    What lies a whole window before the last part is no longer kept, and was full.
    """
    parts, _, _, holes, _ = state
    current = index(quota, now)
    if not parts or parts[-1][0] <= current:
        return 0.0
    kept = sum([count for at, count in parts if at > current])
    full = math.floor((parts[-1][0] - current - 1.0) / (quota.buckets + 1.0)) * quota.limit
    return float(kept + full - sum([units for at, units in holes if at > current]))


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    parts, last, era, _, _ = state
    return (tuple([(part, count / replicas) for part, count in parts]), last, era, (), ())


def booked(quota: RollingWindow, state: State, now: float) -> float:
    """The units of the current window and of the parts ahead; whole windows before the last part count as full."""
    current = index(quota, now)
    ahead = state[0][-1][0] - current if state[0] else 0.0
    free = sum([units for at, units in state[3] if at >= current])
    return used(quota, state, current) + max(ahead // (quota.buckets + 1.0), 0.0) * quota.limit - free
