"""The fixed window: at most ``limit`` units in each window, and windows aligned to the epoch.

The core is ``(window, count)``: the last window that anything was booked in, which may lie ahead, and its units.
Windows between now and that one count as full, but for their holes ``(window, units)``.
"""

from __future__ import annotations

import math

from ..quotas import FixedWindow
from .state import State, era_of, units_in, with_units


def index(quota: FixedWindow, now: float) -> float:
    """The number of the window that ``now`` lies in."""
    return float(math.floor(now / quota.period_us))


def fresh(now: float) -> State:
    """The state of a bucket that was never used."""
    return ((0.0, 0.0), now, era_of(now), (), ())


def healed(quota: FixedWindow, state: State, now: float) -> State:
    """The state as if it had been last changed now: all windows are moved back by whole ones."""
    (window, count), last, _, holes, ids = state
    back = index(quota, last) - index(quota, now)
    return ((window - back, count), now, era_of(now), tuple([(at - back, units) for at, units in holes]), ids)


def wait(quota: FixedWindow, state: State, now: float, cost: float, soonest: float = 0.0) -> float:
    """The least whole number w of microseconds from ``soonest`` on, such that ``cost`` conforms at ``now + w``."""
    if cost > quota.limit:
        return math.inf
    (window, count), _, _, holes, _ = state
    first = index(quota, now + soonest)
    found: float = max(first, window)
    if found == window and count + cost > quota.limit:
        found += 1.0
    for at, units in holes:
        if first <= at < found and units >= cost:
            found = at
    return max(soonest, found * quota.period_us - now)


def book(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    (window, count), last, era, holes, ids = state
    taken = index(quota, now + wait_us)
    since = now if now > last else last
    if taken < window:
        return ((window, count), since, era, with_units(holes, taken, -cost, index(quota, now)), ids)
    return ((taken, count + cost if taken == window else cost), since, era, holes, ids)


def take_at_once(
    quota: FixedWindow, state: State, now: float, cost: float
) -> tuple[State | None, int, float, float] | None:
    """The state after taking ``cost`` now, and its outlook, in one go; ``None`` where it is not as simple as that.

    This is ``wait``, ``book`` and ``outlook`` where nothing is booked ahead; without a state, there is too little left,
    and the wait is that of the outlook.
    """
    (window, count), last, era, holes, ids = state
    limit, current = quota.limit, now / quota.period_us // 1.0
    if holes or last > now or window > current:
        return None
    if window < current:
        count = 0.0
    if count > limit or cost > limit:
        return None
    is_taken = count + cost <= limit
    if is_taken:
        count += cost
    units = (limit - count) // 1.0
    if units + 1.0 > limit or count + (units + 1.0) <= limit:
        return None  # ``outlook`` gets it right
    end = (current + 1.0) * quota.period_us - now
    return ((current, count), now, era, holes, ids) if is_taken else None, int(units), end, end


def place(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> float:
    """The window that ``book`` counts this cost in."""
    return index(quota, now + wait_us)


def give_back(
    quota: FixedWindow, state: State, now: float, since: float, at: float, cost: float, units: float
) -> State:
    """The state without the last ``units`` of a ``cost`` that was booked in the window ``at``, unless that is over."""
    (window, count), last, era, holes, ids = state
    current, base = index(quota, now), max(now, last)
    if at < current or at > window:
        return state
    if at < window:
        return ((window, count), base, era, with_units(holes, at, units, current), ids)
    count = max(count - units, 0.0)
    while count == 0.0 and window > current:
        window -= 1.0
        count = quota.limit - units_in(holes, window)
        holes = tuple([hole for hole in holes if hole[0] < window])
    return ((window, count), base, era, holes, ids)


def owe(quota: FixedWindow, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end, filling as many windows as that takes."""
    (window, count), last, era, holes, ids = state
    current = index(quota, now)
    if window < current:
        window, count = current, 0.0
    over = units - max(quota.limit - count, 0.0)
    if over <= 0.0:
        return ((window, count + units), max(now, last), era, holes, ids)
    more = float(math.ceil(over / quota.limit))
    return ((window + more, over - (more - 1.0) * quota.limit), max(now, last), era, holes, ids)


def reset_us(quota: FixedWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    (window, _), last, _, _, _ = state
    over: float = max((window + 1.0) * quota.period_us, last)
    return over - now if window >= index(quota, now) else 0.0


def left(quota: FixedWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    (window, count), _, _, holes, _ = state
    current = index(quota, now)
    if current < window:
        return float(math.floor(units_in(holes, current)))
    return float(math.floor(max(quota.limit - count, 0.0) if current == window else quota.limit))


def outlook(quota: FixedWindow, state: State, now: float) -> tuple[float, float, float]:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = left(quota, state, now)
    more_us = wait(quota, state, now, units + 1.0) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, state, now)


def waiting(quota: FixedWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all windows to come, without their holes."""
    (window, count), _, _, holes, _ = state
    current = index(quota, now)
    if window <= current:
        return 0.0
    booked: float = count + (window - current - 1.0) * quota.limit
    return booked - sum([units for at, units in holes if at > current])


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    (window, count), last, era, _, _ = state
    return ((window, count / replicas), last, era, (), ())


def booked(quota: FixedWindow, state: State, now: float) -> float:
    """The units of the current window and of those ahead; those before the last one count as full."""
    (window, count), current = state[0], index(quota, now)
    free = sum([units for at, units in state[3] if at >= current])
    return 0.0 if window < current else count + (window - current) * quota.limit - free
