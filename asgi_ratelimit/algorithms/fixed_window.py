"""The fixed window: at most ``limit`` units in each window, and windows aligned to the epoch.

The core is ``(window, count)``: the last window that anything was booked in, which may lie ahead, and its units.
Windows between now and that one count as full, but for their gaps ``(window, units)``.
"""

from __future__ import annotations

import math

from ..decision import SettledCharge
from ..quotas import FixedWindow
from .state import NEVER, Outlook, State, Taken, units_in_gap, with_gap_units


def index(quota: FixedWindow, now: float) -> float:
    """The number of the window that ``now`` lies in."""
    return float(math.floor(now / quota.period_us))


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return ((0.0, 0.0), now, birth, (), (), b"")


def rebased(quota: FixedWindow, state: State, now: float, birth: int = 0) -> State:
    """The state as if it had been last changed now: all windows are moved back by whole ones."""
    (window, count), last, _, gaps, _, _ = state
    back = index(quota, last) - index(quota, now)
    return ((window - back, count), now, birth, tuple([(at - back, units) for at, units in gaps]), (), b"")


def take(
    quota: FixedWindow,
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


def wait(quota: FixedWindow, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float:
    """The least whole number w of microseconds from ``min_wait_us`` on, such that ``cost`` conforms at ``now + w``."""
    if cost > quota.limit:
        return NEVER
    (window, count), _, _, gaps, _, _ = state
    first = index(quota, now + min_wait_us)
    found: float = max(first, window)
    if found == window and count + cost > quota.limit:
        found += 1.0
    for at, units in gaps:
        if first <= at < found and units >= cost:
            found = at
    return max(min_wait_us, found * quota.period_us - now)


def book(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    (window, count), last, generation, gaps, _, _ = state
    taken = index(quota, now + wait_us)
    since = now if now > last else last
    if taken < window:
        return ((window, count), since, generation, with_gap_units(gaps, taken, -cost, index(quota, now)), (), b"")
    return ((taken, count + cost if taken == window else cost), since, generation, gaps, (), b"")


def place(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> float:
    """The window that ``book`` counts this cost in."""
    return index(quota, now + wait_us)


def give_back(quota: FixedWindow, state: State, now: float, settled: SettledCharge) -> State:
    """The state without what was charged too much, unless its window is over."""
    at, units = settled.place, settled.charge.cost - settled.actual
    (window, count), last, generation, gaps, _, _ = state
    current, base = index(quota, now), max(now, last)
    if at < current or at > window:
        return state
    if at < window:
        return ((window, count), base, generation, with_gap_units(gaps, at, units, current), (), b"")
    count = max(count - units, 0.0)
    while count == 0.0 and window > current:
        window -= 1.0
        count = quota.limit - units_in_gap(gaps, window)
        gaps = tuple([gap for gap in gaps if gap[0] < window])
    return ((window, count), base, generation, gaps, (), b"")


def debit(quota: FixedWindow, state: State, now: float, units: float) -> State:
    """The state with ``units`` more at the end, filling as many windows as that takes."""
    (window, count), last, generation, gaps, _, _ = state
    current = index(quota, now)
    if window < current:
        window, count = current, 0.0
    over = units - max(quota.limit - count, 0.0)
    if over <= 0.0:
        return ((window, count + units), max(now, last), generation, gaps, (), b"")
    more = float(math.ceil(over / quota.limit))
    return ((window + more, over - (more - 1.0) * quota.limit), max(now, last), generation, gaps, (), b"")


def reset_us(quota: FixedWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    (window, _), last, _, _, _, _ = state
    over: float = max((window + 1.0) * quota.period_us, last)
    return over - now if window >= index(quota, now) else 0.0


def most_at_once(quota: FixedWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    (window, count), _, _, gaps, _, _ = state
    current = index(quota, now)
    if current < window:
        return float(math.floor(units_in_gap(gaps, current)))
    return float(math.floor(max(quota.limit - count, 0.0) if current == window else quota.limit))


def outlook(quota: FixedWindow, state: State, now: float) -> Outlook:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = most_at_once(quota, state, now)
    more_us = wait(quota, state, now, units + 1.0) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, state, now)


def booked_ahead(quota: FixedWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all windows to come, without their gaps."""
    (window, count), _, _, gaps, _, _ = state
    current = index(quota, now)
    if window <= current:
        return 0.0
    booked: float = count + (window - current - 1.0) * quota.limit
    return booked - sum([units for at, units in gaps if at > current])


def share(state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    (window, count), last, generation, _, _, _ = state
    return ((window, count / replicas), last, generation, (), (), b"")


def used(quota: FixedWindow, state: State, now: float) -> float:
    """The units of the current window and of those ahead; those before the last one count as full."""
    (window, count), current = state[0], index(quota, now)
    free = sum([units for at, units in state[3] if at >= current])
    return 0.0 if window < current else count + (window - current) * quota.limit - free
