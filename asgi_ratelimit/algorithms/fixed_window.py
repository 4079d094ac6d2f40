"""The fixed window: at most ``limit`` units in each window, and windows aligned to the epoch.

The core is a tuple of runs ``(start, stop, count)`` in order: each window from ``start`` to before ``stop`` has
``count`` units. No run has 0, and two that meet differ. A take goes into the first window with room, so that the free
rest of every window is used, and what is given back is free again.
Where a clock fell back into an earlier window, nothing is taken before the window of the latest change.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeAlias

from ..decision import SettledCharge
from ..quotas import FixedWindow
from .packed import ANEW, of_older
from .state import NEVER, Outlook, State, Taken, given_back, snapped, whole_units

Run: TypeAlias = tuple[float, float, float]

MAX_RUNS = 256
"""The most runs of a state. Beyond that, two neighbours become one, with the higher count."""


def index(quota: FixedWindow, now: float) -> float:
    """The number of the window that ``now`` lies in."""
    return float(math.floor(now / quota.period_us))


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return ((), now, birth, (), (), b"")


def rebased(quota: FixedWindow, state: State, now: float, birth: int = 0) -> State:
    """The state as if it had been last changed now: all windows are moved back by whole ones."""
    runs, last, _, _, _, older = state
    back = index(quota, last) - index(quota, now)
    moved = tuple([(start - back, stop - back, count) for start, stop, count in runs])
    return (moved, now, birth, (), (), older)


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
    after = book(quota, without_what_is_over(quota, state, now) if state[5] else state, now, cost, wait_us)
    return after, wait_us, outlook(quota, after, now)


def without_what_is_over(quota: FixedWindow, state: State, now: float) -> State:
    """The state without another version that means nothing any more."""
    older = state[5]
    is_over = older and reset_us(quota, of_older(quota, older), now) <= 0.0
    return (*state[:5], b"") if is_over else state


def wait(quota: FixedWindow, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float:
    """The least whole number w of microseconds from ``min_wait_us`` on, such that ``cost`` conforms at ``now + w``."""
    if cost > quota.limit:
        return NEVER
    most = snapped(quota, snapped(quota, quota.limit) - snapped(quota, cost))  # beside the cost
    found = index(quota, max(now + min_wait_us, state[1]))
    for start, stop, count in state[0]:
        if found < start:
            break
        if found < stop and count > most:
            found = stop
    wait_us: float = max(min_wait_us, found * quota.period_us - now)
    return wait_us


def book(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    runs, last, generation, _, _, older = state
    taken, since, units = index(quota, now + wait_us), now if now > last else last, snapped(quota, cost)
    first = index(quota, since)
    if not runs or runs[-1][1] <= first:
        return (((taken, taken + 1.0, units),), since, generation, (), (), older)
    count = snapped(quota, count_at(runs, taken) + units)
    if len(runs) == 1 and runs[0][0] == taken == runs[0][1] - 1.0:  # as with_count, but faster
        return (((taken, taken + 1.0, count),), since, generation, (), (), older)
    return (with_count(runs, taken, count, first), since, generation, (), (), older)


def count_at(runs: tuple[Run, ...], at: float) -> float:
    """The units of the window ``at``."""
    for start, stop, count in runs:
        if start <= at < stop:
            return count
    return 0.0


def with_count(runs: tuple[Run, ...], at: float, count: float, first: float) -> tuple[Run, ...]:
    """The runs with ``count`` units in the window ``at``, and without what lies before the window ``first``."""
    return bounded(_replaced(runs, at, count, first))


def _replaced(runs: tuple[Run, ...], at: float, count: float, first: float) -> list[Run]:
    """``with_count``, as many runs as that takes."""
    after: list[Run] = []
    for start, stop, other in runs:
        _add_run(after, max(start, first), min(stop, at), other)
    _add_run(after, at, at + 1.0, count)
    for start, stop, other in runs:
        _add_run(after, max(start, at + 1.0), stop, other)
    return after


def _add_run(runs: list[Run], start: float, stop: float, count: float) -> None:
    if start >= stop or count <= 0.0:
        return
    if runs and runs[-1][1] == start and runs[-1][2] == count:
        runs[-1] = (runs[-1][0], stop, count)
    else:
        runs.append((start, stop, count))


def bounded(runs: list[Run]) -> tuple[Run, ...]:
    """At most ``MAX_RUNS`` of these runs: as long as there are more, the two that lose least become one."""
    while len(runs) > MAX_RUNS:
        losses = [_joined(*pair)[1] for pair in pairwise(runs)]
        least = losses.index(min(losses))
        runs[least : least + 2] = [_joined(*runs[least : least + 2])[0]]
    return tuple(runs)


def _joined(one: Run, other: Run) -> tuple[Run, float]:
    """One run in place of two neighbours, and the units that it has more than both."""
    start, stop, count = one[0], other[1], max(one[2], other[2])
    lost = count * (stop - start) - one[2] * (one[1] - one[0]) - other[2] * (other[1] - other[0])
    return (start, stop, count), lost


def place(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> tuple[float, float]:
    """The window that ``book`` counts this cost in, and its slot."""
    return index(quota, now + wait_us), max(now + wait_us, state[1])


def give_back(quota: FixedWindow, state: State, now: float, settled: SettledCharge) -> State:
    """The state after a charge came to less than its cost, unless the window that it was booked in is over.

    Where that is one run too many, nothing is given back: of two that become one, a window would count more.
    """
    runs, last, generation, _, _, older = state
    base = max(now, last)
    first, count = index(quota, base), count_at(runs, settled.place)
    if settled.place < first or count == 0.0:
        return state
    left = given_back(quota, count, settled.charge.cost, settled.actual)
    after = _replaced(runs, settled.place, left, first)
    return (tuple(after), base, generation, (), (), older) if len(after) <= MAX_RUNS else state


def debit(quota: FixedWindow, state: State, now: float, units: float) -> State:
    """The state with ``units`` more: they fill all windows from this one on, as far as that takes."""
    runs, last, generation, _, _, older = state
    base, left, after = max(now, last), snapped(quota, units), list[Run]()
    at = index(quota, base)
    for start, stop, count in runs:
        if stop > at:
            left = _filled(quota, after, (at, max(start, at), 0.0), left)
            left = _filled(quota, after, (max(start, at), stop, count), left)
            at = stop
    _filled(quota, after, (at, math.inf, 0.0), left)
    return (bounded(after), base, generation, (), (), older)


def _filled(quota: FixedWindow, runs: list[Run], run: Run, units: float) -> float:
    """Add a run, filled up with ``units``, and return those that are left."""
    start, stop, count = run
    limit = snapped(quota, quota.limit)
    free = max(limit - count, 0.0)
    if units <= 0.0 or free == 0.0:
        _add_run(runs, start, stop, count)
        return units
    full = min(float(math.floor(units / free)), stop - start)
    _add_run(runs, start, start + full, limit)
    rest = snapped(quota, max(units - full * free, 0.0))
    if start + full == stop:
        return rest
    _add_run(runs, start + full, start + full + 1.0, snapped(quota, count + rest))
    _add_run(runs, start + full + 1.0, stop, count)
    return 0.0


def reset_us(quota: FixedWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more, in all versions."""
    runs, last, _, _, _, older = state
    over: float = runs[-1][1] * quota.period_us if runs else 0.0
    own_us = max(over, last) - now if over > now else 0.0
    return max(own_us, reset_us(quota, of_older(quota, older), now)) if older else own_us


def of_version(quota: FixedWindow, stored: State, stamp: bytes, older: bytes) -> State:
    """The state that is made from one that was ``stored`` under another limit: what the window of ``last`` has.

    What was used stays used. What is booked ahead keeps its slots, and nobody else waits for them.
    """
    runs, last, generation, _, _, _ = stored
    at = index(quota, last)
    count = count_at(runs, at)
    return (((at, at + 1.0, count),) if count > 0.0 else (), last, generation ^ ANEW, (), (), older)


def merged(quota: FixedWindow, own: State, other: State) -> State:
    """The state made of the ``other`` version's, and what this one had booked ahead when that took over from it."""
    runs, last, generation, _, _, _ = own
    if last > other[1]:  # a clock fell back since
        return (*own[:5], other[5])
    at = index(quota, other[1])
    count = count_at(other[0], at)
    if at > index(quota, last):
        count = snapped(quota, count + count_at(runs, at))
    return (with_count(runs, at, count, at), other[1], generation, (), (), other[5])


def most_at_once(quota: FixedWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    current = index(quota, now)
    return 0.0 if current < index(quota, state[1]) else whole_units(quota, count_at(state[0], current))


def outlook(quota: FixedWindow, state: State, now: float) -> Outlook:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = most_at_once(quota, state, now)
    more_us = wait(quota, state, now, units + 1.0) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, (*state[:5], b""), now)


def at_end(quota: FixedWindow, state: State) -> State:
    """The state as if every window before the last one in use were full."""
    runs = state[0]
    if not runs:
        return state
    _, stop, count = runs[-1]
    return (((-math.inf, stop - 1.0, quota.limit), (stop - 1.0, stop, count)), *state[1:])


def is_queue(quota: FixedWindow, state: State, now: float) -> bool:
    """Whether what conforms at one time from now on conforms at any later one: nothing lies ahead."""
    runs = state[0]
    return not runs or runs[-1][1] - 1.0 <= index(quota, now)


def booked_ahead(quota: FixedWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all windows to come."""
    return _counted_from(state[0], index(quota, now) + 1.0)


def share(quota: FixedWindow, state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    runs, last, generation, _, _, _ = state
    shared = tuple([(start, stop, snapped(quota, count / replicas)) for start, stop, count in runs])
    return (shared, last, generation, (), (), b"")


def used(quota: FixedWindow, state: State, now: float) -> float:
    """The units of the current window and of those ahead."""
    return _counted_from(state[0], index(quota, now))


def _counted_from(runs: tuple[Run, ...], first: float) -> float:
    return sum([count * max(stop - max(start, first), 0.0) for start, stop, count in runs])
