"""The rolling window: at most ``limit`` units in any interval of one period, counted in parts.

A part's units go only when its end has left the window: a unit in part i counts until the start of part
``i + buckets + 1``. So any ``buckets + 1`` parts in a row have at most ``limit`` units, and these cover every interval
of one period: that is the promise, at the price of one part's delay.

The core is ``(full_until, debit, parts)``. Parts are pairs ``(part, count)`` in order, for the parts that may still
matter. No count is 0, and some parts may lie ahead. A take goes into the first part that leaves all windows around it
at or under the limit. Nothing is taken before the part ``full_until``, because there were too many parts to store.
The debit holds the units that no window has had room for yet, as of the part of the latest change; see ``paid``. Nobody
takes anything before it is paid back. What is booked ahead keeps its slots.
If a clock fell back into an earlier part, nothing is taken before the part of the latest change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TypeAlias

from ..decision import SettledCharge
from ..quotas import RollingWindow
from .packed_states import ANEW, MAX_DEBIT, of_older
from .state import MAX_PIECES, NEVER, NEVER_US, Outlook, State, Taken
from .windows.exact_units import count_left, debit_beside, snapped, whole_units
from .windows.rolling_parts import Parts, first_fit, highest, paid, with_units

Core: TypeAlias = tuple[float, float, Parts]


def index(quota: RollingWindow, now: float) -> float:
    """The number of the part that ``now`` lies in."""
    return float(math.floor(now / quota.part_us))


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return ((0.0, 0.0, ()), now, birth, (), (), b"")


def rebased(quota: RollingWindow, state: State, now: float, birth: int = 0) -> State:
    """The state as if its last change were now: all parts move back by a whole number of parts."""
    (full_until, debit, parts), last, _, _, _, older = state
    back = index(quota, last) - index(quota, now)
    moved = tuple([(part - back, count) for part, count in parts])
    return ((max(full_until - back, 0.0), debit, moved), now, birth, (), (), older)


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
    after = book(quota, without_what_is_over(quota, state, now) if state[5] else state, now, cost, wait_us)
    return after, wait_us, outlook(quota, after, now)


def without_what_is_over(quota: RollingWindow, state: State, now: float) -> State:
    """The state without another version that no longer matters."""
    older = state[5]
    is_over = older and reset_us(quota, of_older(quota, older), now) <= 0.0
    return (*state[:5], b"") if is_over else state


def wait(quota: RollingWindow, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float:
    """The least whole number of microseconds, at least ``min_wait_us``, after which ``cost`` conforms."""
    if cost > quota.limit:
        return NEVER
    (full_until, debit, parts), last, _, _, _, _ = state
    if debit > 0.0:
        full_until, parts = with_debit(quota, state)
    first = max(index(quota, max(now + min_wait_us, last)), full_until)
    part = first_fit(quota, parts, first, snapped(quota, cost))
    wait_us: float = max(min_wait_us, part * quota.part_us - now)
    return NEVER if wait_us >= NEVER_US or part + quota.buckets + 1.0 >= NEVER_US else wait_us


def book(quota: RollingWindow, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``."""
    if state[0][1] > 0.0:
        state = paid_back(quota, state, now)
    (full_until, debit, parts), last, generation, _, _, older = state
    taken, since = index(quota, now + wait_us), now if now > last else last
    after = with_units(quota, parts, taken, snapped(quota, cost))
    return (bounded(quota, full_until, debit, after, index(quota, since)), since, generation, (), (), older)


def bounded(quota: RollingWindow, full_until: float, debit: float, parts: Parts, first: float) -> Core:
    """A core without what no longer matters from the part ``first`` on, with at most ``MAX_PIECES + buckets`` parts."""
    if full_until <= first:
        full_until = 0.0
    number, most = bisect_left(parts, (max(first, full_until) - quota.buckets,)), MAX_PIECES + quota.buckets
    if len(parts) - number > most:
        full_until = parts[-most - 1][0] + quota.buckets + 1.0
        number = bisect_left(parts, (full_until - quota.buckets,))
    return full_until, debit, parts[number:]


def place(quota: RollingWindow, state: State, now: float, cost: float, wait_us: float) -> tuple[float, float]:
    """The part that ``book`` counts this cost in, and its slot."""
    return index(quota, now + wait_us), max(now + wait_us, state[1])


def give_back(quota: RollingWindow, state: State, now: float, settled: SettledCharge) -> State:
    """The state after a charge came to less than its cost, if the part that it was booked in still counts."""
    (full_until, left, parts), last, generation, _, _, older = paid_back(quota, state, now)
    base, after = max(now, last), []
    for part, count in parts:
        if part == settled.place:
            left = debit_beside(quota, left, count, settled)
            count = count_left(quota, count, settled.charge.cost, settled.actual)  # noqa: PLW2901
        if count > 0.0:
            after.append((part, count))
    core = bounded(quota, full_until, left, tuple(after), index(quota, base))
    return paid_back(quota, (core, base, generation, (), (), older), base)


def debit(quota: RollingWindow, state: State, now: float, units: float, place: float) -> State:
    """The state with ``units`` more in the part ``place``, or in the current part if ``place`` no longer counts.

    Units that have no room now are paid back by the room to come. A part ahead still counts them.
    """
    (full_until, left, parts), last, generation, _, _, older = paid_back(quota, state, now)
    base, limit, units = max(now, last), snapped(quota, quota.limit), snapped(quota, units)
    first = index(quota, base)
    if place > first:
        most = highest(quota, parts, place)
        parts = with_units(quota, parts, place, units)
        units = snapped(quota, max(snapped(quota, most + units) - max(limit, most), 0.0))
    elif first - quota.buckets <= place < first and full_until <= first:
        fit = min(snapped(quota, max(limit - highest(quota, parts, first), 0.0)), units)
        if fit > 0.0:
            parts, units = with_units(quota, parts, place, fit), snapped(quota, max(units - fit, 0.0))
    core = bounded(quota, full_until, min(snapped(quota, left + units), MAX_DEBIT / 2), parts, first)
    return paid_back(quota, (core, base, generation, (), (), older), base)


def paid_back(quota: RollingWindow, state: State, now: float) -> State:
    """The state after paying back as much debit as the parts up to now have had room for."""
    (full_until, left, parts), last, generation, _, _, older = state
    if left <= 0.0:
        return state
    base = max(now, last)
    parts, left, _ = paid(quota, parts, left, max(index(quota, last), full_until), index(quota, base))
    return (bounded(quota, full_until, left, parts, index(quota, base)), base, generation, (), (), older)


def with_debit(quota: RollingWindow, state: State) -> tuple[float, Parts]:
    """The part before which nobody takes anything, and the parts as they will be once the debit is paid back."""
    (full_until, left, parts), last, _, _, _, _ = state
    if left <= 0.0:
        return full_until, parts
    parts, _, until = paid(quota, parts, left, max(index(quota, last), full_until), math.inf)
    return until, parts


def reset_us(quota: RollingWindow, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters, in all versions."""
    (full_until, debit, parts), last, _, _, _, older = state
    if debit > 0.0:
        full_until, parts = with_debit(quota, state)
    over: float = max(full_until, parts[-1][0] + quota.buckets + 1.0 if parts else 0.0) * quota.part_us
    own_us = max(over, last) - now if over > now else 0.0
    return max(own_us, reset_us(quota, of_older(quota, older), now)) if older else own_us


def of_version(quota: RollingWindow, stored: State, stamp: bytes, older: bytes) -> State:
    """The state made from one ``stored`` under another limit: the parts up to that of ``last``.

    What was used stays used, and the debit is paid back under the new limit. What is booked ahead keeps its slots, and
    nobody else waits for them.
    """
    (full_until, debit, parts), last, generation, _, _, _ = stored
    at = index(quota, last)
    used = parts[: bisect_left(parts, (at + 1.0,))]
    return ((min(full_until, at + 1.0 + quota.buckets), debit, used), last, generation ^ ANEW, (), (), older)


def merged(quota: RollingWindow, own: State, other: State) -> State:
    """The ``other`` version's state, with what this version had booked ahead when the other took over from it."""
    (full_until, _, parts), last, generation, _, _, _ = own
    if last > other[1]:  # a clock fell back since
        return (*own[:5], other[5])
    other_until, debit, other_parts = other[0]
    counts, first = dict(other_parts), index(quota, last) + 1.0
    for part, count in parts[bisect_left(parts, (first,)) :]:
        counts[part] = snapped(quota, counts.get(part, 0.0) + count)
    merged_parts, at = tuple(sorted(counts.items())), index(quota, other[1])
    core = bounded(quota, max(full_until, other_until), debit, merged_parts, at)
    return (core, other[1], generation, (), (), other[5])


def most_at_once(quota: RollingWindow, state: State, now: float) -> float:
    """The most whole units that could be taken at once."""
    (full_until, debit, parts), last, _, _, _, _ = state
    if debit > 0.0:
        full_until, parts = with_debit(quota, state)
    current = index(quota, now)
    if current < max(full_until, index(quota, last)):
        return 0.0
    return whole_units(quota, highest(quota, parts, current))


def outlook(quota: RollingWindow, state: State, now: float) -> Outlook:
    """The most whole units that could be taken at once, and the microseconds until one more, and until all are."""
    units = most_at_once(quota, state, now)
    more_us = min(wait(quota, state, now, units + 1.0), NEVER_US) if units + 1.0 <= quota.limit else 0.0
    return units, more_us, reset_us(quota, (*state[:5], b""), now)


def at_end(quota: RollingWindow, state: State) -> State:
    """The state as if every part before the last one in use were full."""
    full_until, parts = with_debit(quota, state)
    return ((max(full_until, parts[-1][0]), 0.0, parts), *state[1:]) if parts else state


def is_queue(quota: RollingWindow, state: State, now: float) -> bool:
    """Whether what conforms at one time from now on conforms at any later one: nothing lies ahead."""
    parts = state[0][2]
    return not parts or parts[-1][0] <= index(quota, now)


def booked_ahead(quota: RollingWindow, state: State, now: float) -> float:
    """The units that are booked for later: those of all parts to come, and what they pay back.

    Whole windows that are not stored are full.
    """
    return _counted_from(quota, paid_back(quota, state, now), index(quota, now) + 1.0)


def share(quota: RollingWindow, state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    (full_until, debit, parts), last, generation, _, _, _ = state
    shared = tuple([(part, snapped(quota, count / replicas)) for part, count in parts])
    return ((full_until, snapped(quota, debit / replicas), shared), last, generation, (), (), b"")


def used(quota: RollingWindow, state: State, now: float) -> float:
    """The units of the current window and of the parts ahead, and what they pay back.

    Whole windows that are not stored are full.
    """
    return _counted_from(quota, paid_back(quota, state, now), index(quota, now) - quota.buckets)


def _counted_from(quota: RollingWindow, state: State, first: float) -> float:
    full_until, debit, parts = state[0]
    full: float = max((full_until - quota.buckets - first) // (quota.buckets + 1.0), 0.0) * quota.limit + debit
    return full + float(sum([count for part, count in parts if part >= first]))
