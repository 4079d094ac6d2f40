"""The rolling window: at most ``limit`` units in any interval of one period, counted in parts.

The core is a tuple of ``(part, count)`` in order, for the parts that may still matter. A part's units go only when its
end has left the window: a unit in part i counts until the start of part ``i + buckets + 1``. So what is counted in
part j covers the whole period before every moment of it, and the promise holds, at the price of one part's delay.
The last part may lie ahead; nothing is booked before it, but in the gaps ``(part, units)``.
"""

from __future__ import annotations

import math

from ..decision import SettledCharge
from ..quotas import RollingWindow
from .state import NEVER, Outlook, State, Taken, units_in_gap, with_gap_units


def index(quota: RollingWindow, now: float) -> float:
    """The number of the part that ``now`` lies in."""
    return float(math.floor(now / quota.part_us))


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return ((), now, birth, (), (), b"")


def rebased(quota: RollingWindow, state: State, now: float, birth: int = 0) -> State:
    """The state as if it had been last changed now: all parts are moved back by whole ones."""
    parts, last, _, gaps, _, _ = state
    back = index(quota, last) - index(quota, now)
    moved = tuple([(at - back, count) for at, count in parts])
    return (moved, now, birth, tuple([(at - back, units) for at, units in gaps]), (), b"")


def counted(quota: RollingWindow, state: State, at: float) -> float:
    """The units that count in part ``at``, added up from the last part backward."""
    total = 0.0
    for part, count in reversed(state[0]):
        if part < at - quota.buckets:
            break
        total += count
    return total


def take(
    quota: RollingWindow,
    state: State,
    now: float,
    cost: float,
    max_wait_us: float,
    min_wait_us: float = 0.0,
    may_settle: bool = False,
) -> Taken:
    """Take ``cost`` units at the earliest slot from ``now + min_wait_us`` on, or none if it is too far away."""
    wait_us = wait(quota, state, now, cost, min_wait_us)
    if wait_us > max_wait_us or wait_us == NEVER:
        return None, wait_us, outlook(quota, state, now)
    after = book(quota, state, now, cost, wait_us)
    return after, wait_us, outlook(quota, after, now)


def wait(quota: RollingWindow, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float:
    """The least whole number w of microseconds from ``min_wait_us`` on, such that ``cost`` conforms at ``now + w``."""
    if cost > quota.limit:
        return NEVER
    parts, _, _, gaps, _, _ = state
    first = index(quota, now + min_wait_us)
    found = _end(quota, parts, max(first, parts[-1][0]) if parts else first, cost)
    for at, units in gaps:
        if first <= at < found and units >= cost:
            found = at
    return max(min_wait_us, found * quota.part_us - now)


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
    parts, last, generation, gaps, _, _ = state
    taken = index(quota, now + wait_us)
    since = now if now > last else last
    if parts and taken < parts[-1][0]:
        return (parts, since, generation, with_gap_units(gaps, taken, -cost, index(quota, now)), (), b"")
    if parts and taken == parts[-1][0]:
        return ((*parts[:-1], (taken, parts[-1][1] + cost)), since, generation, gaps, (), b"")
    kept = [(at, count) for at, count in parts if at >= taken - quota.buckets and count > 0.0]
    return ((*kept, (taken, cost)), since, generation, gaps, (), b"")


def place(quota: RollingWindow, state: State, now: float, cost: float, wait_us: float) -> float:
    """The part that ``book`` counts this cost in."""
    return index(quota, now + wait_us)


def give_back(quota: RollingWindow, state: State, now: float, settled: SettledCharge) -> State:
    """The state without what was charged too much, if its part still counts."""
    at, units = settled.place, settled.charge.cost - settled.actual
    parts, last, generation, gaps, _, _ = state
    current, base = index(quota, now), max(now, last)
    if not parts or at > parts[-1][0]:
        return state
    if current <= at < parts[-1][0]:
        return (parts, base, generation, with_gap_units(gaps, at, units, current), (), b"")
    lowered = tuple([(part, max(count - units, 0.0) if part == at else count) for part, count in parts])
    return (lowered, base, generation, gaps, (), b"")


def debit(quota: RollingWindow, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end, filling as many windows as that takes."""
    parts, last, generation, gaps, _, _ = state
    current = index(quota, now)
    at = max(current, parts[-1][0]) if parts else current
    kept = [(part, count) for part, count in parts if part >= at - quota.buckets and part != at]
    had = parts[-1][1] if parts and parts[-1][0] == at else 0.0
    over = units - max(quota.limit - counted(quota, state, at), 0.0)
    if over <= 0.0:
        return ((*kept, (at, had + units)), max(now, last), generation, gaps, (), b"")
    more = float(math.ceil(over / quota.limit))
    end = at + more * (quota.buckets + 1.0)
    return (((end, over - (more - 1.0) * quota.limit),), max(now, last), generation, gaps, (), b"")


def reset_us(quota: RollingWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    parts, last, _, _, _, _ = state
    if not parts:
        return 0.0
    over = (parts[-1][0] + quota.buckets + 1.0) * quota.part_us
    return max(over, last) - now if over > now else 0.0


def most_at_once(quota: RollingWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    current = index(quota, now)
    if state[0] and current < state[0][-1][0]:
        return float(math.floor(units_in_gap(state[3], current)))
    return float(math.floor(max(quota.limit - counted(quota, state, current), 0.0)))


def outlook(quota: RollingWindow, state: State, now: float) -> Outlook:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = most_at_once(quota, state, now)
    more_us = wait(quota, state, now, units + 1.0) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, state, now)


def booked_ahead(quota: RollingWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all parts to come, without their gaps.

    What lies a whole window before the last part is no longer kept, and was full.
    """
    parts, _, _, gaps, _, _ = state
    current = index(quota, now)
    if not parts or parts[-1][0] <= current:
        return 0.0
    kept = sum([count for at, count in parts if at > current])
    full = math.floor((parts[-1][0] - current - 1.0) / (quota.buckets + 1.0)) * quota.limit
    return float(kept + full - sum([units for at, units in gaps if at > current]))


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    parts, last, generation, _, _, _ = state
    return (tuple([(part, count / replicas) for part, count in parts]), last, generation, (), (), b"")


def used(quota: RollingWindow, state: State, now: float) -> float:
    """The units of the current window and of the parts ahead; whole windows before the last part count as full."""
    current = index(quota, now)
    ahead = state[0][-1][0] - current if state[0] else 0.0
    free = sum([units for at, units in state[3] if at >= current])
    return counted(quota, state, current) + max(ahead // (quota.buckets + 1.0), 0.0) * quota.limit - free
