"""The rolling window: at most ``limit`` units in any interval of ``period``, counted in equal parts of it.

A part counts until the whole of it has left the window, so a unit may count for one part too long, and never too short.
Slots are booked in order: nothing is taken in front of a slot that is booked.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..quotas import RollingWindow
from . import NEVER, NEVER_US, ROLLING_WINDOW, Booked, has_parts, pack_parts, unpack_parts

# The most parts that takes may make: fewer than a value may have, because debits add some.
MOST_BOOKED = 2000

# The number of a part since the Unix epoch, and its units.
Part = tuple[float, float]


class RollingWindowState(NamedTuple):
    """The time ``at`` of the last change, and the parts that are not empty, in order."""

    at: float
    parts: tuple[Part, ...]


def index_of(quota: RollingWindow, time: float) -> float:
    """The number of the part that a time lies in."""
    return float(math.floor(time / quota.part_us))


def unused(quota: RollingWindow, now: float) -> RollingWindowState:
    """The state of a bucket that was never used."""
    return RollingWindowState(now, ())


def moved_back(quota: RollingWindow, state: RollingWindowState, now: float) -> RollingWindowState:
    """The state after the clock went back: the parts go back with it, and keep what they hold."""
    back = index_of(quota, state.at) - index_of(quota, now)
    return RollingWindowState(now, tuple([(index - back, units) for index, units in state.parts]))


def changed(quota: RollingWindow, state: RollingWindowState, now: float) -> RollingWindowState:
    """The state of a quota whose numbers were others: what was used stays used, up to the new limit, the latest first.

    Slots that are booked keep their times, and nobody else waits for them.
    """
    left, kept, current = quota.limit, [], index_of(quota, now)
    for index, units in reversed(state.parts):
        if index <= current and left > 0.0:
            kept.append((index, min(units, left)))
            left -= units
    return RollingWindowState(state.at, tuple(reversed(kept)))


def pack(quota: RollingWindow, state: RollingWindowState) -> bytes:
    """The value of a state."""
    return pack_parts(ROLLING_WINDOW, quota.stamp, *state)


def unpack(value: bytes) -> tuple[int, float, RollingWindowState]:
    """The stamp, the time and the state in a value."""
    stamp, at, parts = unpack_parts(value)
    return stamp, at, RollingWindowState(at, parts)


def is_valid(quota: RollingWindow | None, value: bytes) -> bool:
    """Whether it is a value: not damaged, of an older format or of another kind; ``None`` is an unknown quota."""
    return has_parts(ROLLING_WINDOW, value)


def drained(quota: RollingWindow, state: RollingWindowState, now: float) -> tuple[Part, ...]:
    """The parts that still count."""
    parts, first = state.parts, index_of(quota, now) - quota.buckets
    if not parts or parts[0][0] >= first:
        return parts
    return tuple([part for part in parts if part[0] >= first])


def first_fit(quota: RollingWindow, parts: tuple[Part, ...], most: float, earliest: float) -> float:
    """The first part, from ``earliest`` on, at which the window holds at most ``most`` units."""
    total = 0.0
    for _, units in parts:
        total += units
    index = earliest
    for number, units in parts:
        if number + quota.buckets >= index:
            if total <= most:
                return index
            index = number + quota.buckets + 1.0
        total -= units
    return index


def take(
    quota: RollingWindow, state: RollingWindowState, now: float, cost: float, max_wait: float, min_wait: float
) -> tuple[RollingWindowState | None, float]:
    """The state after ``cost`` units are taken at the earliest moment from ``min_wait`` on, and the wait until then.

    ``None`` if the wait is longer than ``max_wait``, if the cost is above the limit, or if too many parts are in use.
    """
    if cost > quota.limit + quota.slack:
        return None, NEVER
    parts = drained(quota, state, now)
    earliest = index_of(quota, now + min_wait)
    last = parts[-1][0] if parts and parts[-1][0] > earliest else earliest
    index = first_fit(quota, parts, quota.limit - cost + quota.slack, last)
    wait = index * quota.part_us - now if index > earliest else min_wait
    if wait > max_wait or wait >= NEVER_US:
        return None, NEVER if wait >= NEVER_US else wait
    if parts and parts[-1][0] == index:
        return RollingWindowState(now, (*parts[:-1], (index, parts[-1][1] + cost))), wait
    if len(parts) >= MOST_BOOKED:
        return None, NEVER
    return RollingWindowState(now, (*parts, (index, cost))), wait


def place_of(quota: RollingWindow, state: RollingWindowState) -> float:
    """Not needed: units come back to the part of their slot."""
    return 0.0


def give_back(
    quota: RollingWindow, state: RollingWindowState, now: float, charge: Booked, units: float
) -> RollingWindowState:
    """The state after ``units`` of a charge come back to the part of its slot, as far as they are there."""
    own, kept = index_of(quota, charge.slot), []
    for index, count in drained(quota, state, now):
        left = count - units if index == own else count
        if left > quota.slack:
            kept.append((index, left))
    return RollingWindowState(now, tuple(kept))


def debit(quota: RollingWindow, state: RollingWindowState, now: float, slot: float, units: float) -> RollingWindowState:
    """The state after ``units`` more were used than charged, in the part of their slot, or in the current one."""
    current, own = index_of(quota, now), index_of(quota, slot)
    index, parts = own if own >= current - quota.buckets else current, dict(drained(quota, state, now))
    parts[index] = parts.get(index, 0.0) + units
    return RollingWindowState(now, tuple(sorted(parts.items())))


def available(quota: RollingWindow, state: RollingWindowState, now: float) -> tuple[int, float]:
    """The whole units that can be taken now, and the microseconds until one more can be: 0 if all can."""
    parts, current = drained(quota, state, now), index_of(quota, now)
    total = 0.0
    for _, units in parts:
        total += units
    free = int(quota.limit - total + quota.slack)
    if free < 0 or (parts and parts[-1][0] > current):
        free = 0
    if free + 1.0 > quota.limit:
        return int(quota.limit), 0.0
    return free, take(quota, state, now, free + 1.0, NEVER, 0.0)[1]


def reset_us(quota: RollingWindow, state: RollingWindowState, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters."""
    parts = drained(quota, state, now)
    return (parts[-1][0] + quota.buckets + 1.0) * quota.part_us - now if parts else 0.0


def in_use(quota: RollingWindow, state: RollingWindowState, now: float) -> float:
    """The units that are used or booked, and have not left the window."""
    return sum([units for _, units in drained(quota, state, now)])


def booked_ahead(quota: RollingWindow, state: RollingWindowState, now: float) -> float:
    """The units that are booked for later."""
    current = index_of(quota, now)
    return sum([units for index, units in state.parts if index > current])
