"""The fixed window: at most ``limit`` units in each window, and windows aligned to the epoch.

The core is ``(debit, runs)``. Runs ``(start, stop, count)`` are in order: each window from ``start`` to before ``stop``
has ``count`` units. No run has a count of 0, and adjacent runs have different counts. A take goes into the first window
with room, so the free rest of every window is used. What is given back is free again.
The debit holds the units that no window has had room for yet, as of the window of the latest change. All room from that
window on goes to the debit first: nobody takes anything before it is paid back. What is booked ahead keeps its slots.
If a clock fell back into an earlier window, nothing is taken before the window of the latest change.
"""

from __future__ import annotations

import math

from ..decision import SettledCharge
from ..quotas import FixedWindow
from .packed_states import ANEW, MAX_DEBIT, of_older
from .state import MAX_PIECES, NEVER, NEVER_US, Outlook, State, Taken
from .windows.exact_units import count_left, debit_beside, snapped, whole_units
from .windows.fixed_runs import Run, count_at, filled, replaced, with_count


def index(quota: FixedWindow, now: float) -> float:
    """The number of the window that ``now`` lies in."""
    return float(math.floor(now / quota.period_us))


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return ((0.0, ()), now, birth, (), (), b"")


def rebased(quota: FixedWindow, state: State, now: float, birth: int = 0) -> State:
    """The state as if its last change were now: all windows move back by a whole number of windows."""
    (debit, runs), last, _, _, _, older = state
    back = index(quota, last) - index(quota, now)
    moved = tuple([(start - back, stop - back, count) for start, stop, count in runs])
    return ((debit, moved), now, birth, (), (), older)


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
    """The state without another version that no longer matters."""
    older = state[5]
    is_over = older and reset_us(quota, of_older(quota, older), now) <= 0.0
    return (*state[:5], b"") if is_over else state


def wait(quota: FixedWindow, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float:
    """The least whole number of microseconds, at least ``min_wait_us``, after which ``cost`` conforms."""
    if cost > quota.limit:
        return NEVER
    most = snapped(quota, snapped(quota, quota.limit) - snapped(quota, cost))  # beside the cost
    window = index(quota, max(now + min_wait_us, state[1]))
    debit, runs = state[0]
    for start, stop, count in runs_with_debit(quota, state) if debit > 0.0 else runs:
        if window < start:
            break
        if window < stop and count > most:
            window = stop
    wait_us: float = max(min_wait_us, window * quota.period_us - now)
    return NEVER if wait_us >= NEVER_US or window + 1.0 >= NEVER_US else wait_us


def book(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    if state[0][0] > 0.0:
        state = paid_back(quota, state, now)
    (debit, runs), last, generation, _, _, older = state
    taken, since, units = index(quota, now + wait_us), now if now > last else last, snapped(quota, cost)
    first = index(quota, since)
    if not runs or runs[-1][1] <= first:
        return ((debit, ((taken, taken + 1.0, units),)), since, generation, (), (), older)
    count = snapped(quota, count_at(runs, taken) + units)
    if len(runs) == 1 and runs[0][0] == taken == runs[0][1] - 1.0:  # as with_count, but faster
        return ((debit, ((taken, taken + 1.0, count),)), since, generation, (), (), older)
    return ((debit, with_count(runs, taken, count, first)), since, generation, (), (), older)


def place(quota: FixedWindow, state: State, now: float, cost: float, wait_us: float) -> tuple[float, float]:
    """The window that ``book`` counts this cost in, and its slot."""
    return index(quota, now + wait_us), max(now + wait_us, state[1])


def give_back(quota: FixedWindow, state: State, now: float, settled: SettledCharge) -> State:
    """The state after a charge came to less than its cost, unless the window that it was booked in is over.

    If that makes one run too many, nothing is given back: joining two runs would make a window count more.
    """
    state = paid_back(quota, state, now)
    (left, runs), last, generation, _, _, older = state
    base, place = max(now, last), settled.place
    first, count = index(quota, base), count_at(runs, place)
    if place < first or count == 0.0:
        return state
    after = replaced(runs, place, count_left(quota, count, settled.charge.cost, settled.actual), first)
    if len(after) > MAX_PIECES:
        return state
    left = debit_beside(quota, left, count, settled)
    return paid_back(quota, ((left, tuple(after)), base, generation, (), (), older), base)


def debit(quota: FixedWindow, state: State, now: float, units: float, place: float) -> State:
    """The state with ``units`` more in the window ``place``, or in the current window if ``place`` is over.

    Units that this window has no room for are paid back by the room to come. A window ahead still counts them.
    """
    (left, runs), last, generation, _, _, older = paid_back(quota, state, now)
    base, units = max(now, last), snapped(quota, units)
    first = index(quota, base)
    if place > first:
        count = count_at(runs, place)
        total = snapped(quota, count + units)
        runs = with_count(runs, place, total, first)
        units = snapped(quota, max(total - max(snapped(quota, quota.limit), count), 0.0))
    core = (min(snapped(quota, left + units), MAX_DEBIT / 2), runs)
    return paid_back(quota, (core, base, generation, (), (), older), base)


def paid_back(quota: FixedWindow, state: State, now: float) -> State:
    """The state after paying back as much debit as the windows up to now have had room for."""
    (left, runs), last, generation, _, _, older = state
    if left <= 0.0:
        return state
    base = max(now, last)
    first = index(quota, base)
    paid, left = filled(quota, runs, left, index(quota, last), first + 1.0)
    after = with_count(runs, first, count_at(paid, first), first)
    return ((left, after), base, generation, (), (), older)


def runs_with_debit(quota: FixedWindow, state: State) -> tuple[Run, ...]:
    """The runs as they will be when the debit is paid back."""
    (left, runs), last, _, _, _, _ = state
    return tuple(filled(quota, runs, left, index(quota, last), math.inf)[0]) if left > 0.0 else runs


def reset_us(quota: FixedWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters, in all versions."""
    (debit, runs), last, _, _, _, older = state
    if debit > 0.0:
        runs = runs_with_debit(quota, state)
    over: float = runs[-1][1] * quota.period_us if runs else 0.0
    own_us = max(over, last) - now if over > now else 0.0
    return max(own_us, reset_us(quota, of_older(quota, older), now)) if older else own_us


def of_version(quota: FixedWindow, stored: State, stamp: bytes, older: bytes) -> State:
    """The state made from one ``stored`` under another limit: the units of the window of ``last``.

    What was used stays used, and the debit is paid back under the new limit. What is booked ahead keeps its slots, and
    nobody else waits for them.
    """
    (debit, runs), last, generation, _, _, _ = stored
    at = index(quota, last)
    count = count_at(runs, at)
    return ((debit, ((at, at + 1.0, count),) if count > 0.0 else ()), last, generation ^ ANEW, (), (), older)


def merged(quota: FixedWindow, own: State, other: State) -> State:
    """The ``other`` version's state, with what this version had booked ahead when the other took over from it."""
    (_, runs), last, generation, _, _, _ = own
    if last > other[1]:  # a clock fell back since
        return (*own[:5], other[5])
    debit, other_runs = other[0]
    at = index(quota, other[1])
    count = count_at(other_runs, at)
    if at > index(quota, last):
        count = snapped(quota, count + count_at(runs, at))
    return ((debit, with_count(runs, at, count, at)), other[1], generation, (), (), other[5])


def most_at_once(quota: FixedWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    debit, runs = state[0]
    if debit > 0.0:
        runs = runs_with_debit(quota, state)
    current = index(quota, now)
    return 0.0 if current < index(quota, state[1]) else whole_units(quota, count_at(runs, current))


def outlook(quota: FixedWindow, state: State, now: float) -> Outlook:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = most_at_once(quota, state, now)
    more_us = min(wait(quota, state, now, units + 1.0), NEVER_US) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, (*state[:5], b""), now)


def at_end(quota: FixedWindow, state: State) -> State:
    """The state as if every window before the last one in use were full."""
    runs = runs_with_debit(quota, state)
    if not runs:
        return state
    _, stop, count = runs[-1]
    return ((0.0, ((-math.inf, stop - 1.0, quota.limit), (stop - 1.0, stop, count))), *state[1:])


def is_queue(quota: FixedWindow, state: State, now: float) -> bool:
    """Whether what conforms at one time from now on conforms at any later one: nothing lies ahead."""
    runs = state[0][1]
    return not runs or runs[-1][1] - 1.0 <= index(quota, now)


def booked_ahead(quota: FixedWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all windows to come, and what they pay back."""
    return _counted_from(runs_with_debit(quota, state), index(quota, now) + 1.0)


def share(quota: FixedWindow, state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    (debit, runs), last, generation, _, _, _ = state
    shared = tuple([(start, stop, snapped(quota, count / replicas)) for start, stop, count in runs])
    return ((snapped(quota, debit / replicas), shared), last, generation, (), (), b"")


def used(quota: FixedWindow, state: State, now: float) -> float:
    """The units of the current window and of those ahead, and what they pay back."""
    return _counted_from(runs_with_debit(quota, state), index(quota, now))


def _counted_from(runs: tuple[Run, ...], first: float) -> float:
    return sum([count * max(stop - max(start, first), 0.0) for start, stop, count in runs])
