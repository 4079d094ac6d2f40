"""The fixed window: at most ``limit`` units in each window, and windows aligned to the Unix epoch.

What is used and what is booked ahead lie behind each other on one tape, which begins at the window ``at``: the window
number i from there has what is used from ``i * limit`` to ``(i + 1) * limit``. A cost that does not fit into what is
left of a window goes to the start of the next one.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from ..quotas import FixedWindow
from . import FIXED_WINDOW, LARGEST, NEVER, NEVER_US, Booked

_VALUE = struct.Struct("<BI2d")


class FixedWindowState(NamedTuple):
    """``used`` units, on the tape that begins with the window that starts at the time ``at``."""

    used: float
    at: float


def start_of(quota: FixedWindow, time: float) -> float:
    """The start of the window that a time lies in."""
    return math.floor(time / quota.period_us) * quota.period_us


def unused(quota: FixedWindow, now: float) -> FixedWindowState:
    """The state of a bucket that was never used."""
    return FixedWindowState(0.0, start_of(quota, now))


def moved_back(quota: FixedWindow, state: FixedWindowState, now: float) -> FixedWindowState:
    """The state after the clock went back: the windows go back with it, and keep what they hold."""
    return FixedWindowState(state.used, start_of(quota, now))


def changed(quota: FixedWindow, state: FixedWindowState, now: float) -> FixedWindowState:
    """The state of a quota whose numbers were others: what was used stays used, up to the new limit."""
    return FixedWindowState(min(state.used, quota.limit), state.at)


def pack(quota: FixedWindow, state: FixedWindowState) -> bytes:
    """The value of a state."""
    return _VALUE.pack(FIXED_WINDOW, quota.stamp, *state)


def unpack(value: bytes) -> tuple[int, float, FixedWindowState]:
    """The stamp, the time and the state in a value."""
    _, stamp, used, at = _VALUE.unpack(value)
    return stamp, at, FixedWindowState(used, at)


def is_valid(quota: FixedWindow | None, value: bytes) -> bool:
    """Whether it is a value: not damaged, of an older format or of another kind; ``None`` is an unknown quota."""
    if len(value) != _VALUE.size:
        return False
    kind, _, used, at = _VALUE.unpack(value)
    is_state = kind == FIXED_WINDOW and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    return bool(is_state and (quota is None or start_of(quota, at) == at))


def drained(quota: FixedWindow, state: FixedWindowState, now: float) -> FixedWindowState:
    """The state without the windows that are over."""
    start = start_of(quota, now)
    if start <= state.at:
        return state
    used = state.used - (start - state.at) / quota.period_us * quota.limit
    return FixedWindowState(used if used > 0.0 else 0.0, start)


def take(
    quota: FixedWindow, state: FixedWindowState, now: float, cost: float, max_wait: float, min_wait: float
) -> tuple[FixedWindowState | None, float]:
    """The state after ``cost`` units are taken at the earliest moment from ``min_wait`` on, and the wait until then.

    ``None`` if the wait is longer than ``max_wait``, or if the cost is above the limit.
    """
    used, at = drained(quota, state, now)
    limit, period = quota.limit, quota.period_us
    if cost > limit + quota.slack:
        return None, NEVER
    window = max(math.ceil(used / limit) - 1.0, 0.0)
    if used - window * limit + cost > limit + quota.slack:
        window += 1.0
        used = window * limit
    later = (start_of(quota, now + min_wait) - at) / period if min_wait > 0.0 else 0.0
    if later > window:
        window = later
        used = window * limit
    wait = at + window * period - now if window > later else min_wait
    if wait > max_wait or wait >= NEVER_US:
        return None, NEVER if wait >= NEVER_US else wait
    return FixedWindowState(used + cost, at), wait


def place_of(quota: FixedWindow, state: FixedWindowState) -> float:
    """Where on the tape the charge ends that has just been booked."""
    return state.used


def give_back(
    quota: FixedWindow, state: FixedWindowState, now: float, charge: Booked, units: float
) -> FixedWindowState:
    """The state after ``units`` of a charge come back; its place is on the tape that began at ``charge.at``.

    They come back if the charge is the newest, or in the current window while nothing is booked ahead.
    """
    used, at = drained(quota, state, now)
    end = charge.place - (at - charge.at) / quota.period_us * quota.limit
    is_newest = end >= used - quota.slack
    is_current = start_of(quota, charge.slot) == at and used <= quota.limit + quota.slack
    if charge.slot < at or not (is_newest or is_current):
        return state
    return FixedWindowState(used - min(units, used), at)


def debit(quota: FixedWindow, state: FixedWindowState, now: float, slot: float, units: float) -> FixedWindowState:
    """The state after ``units`` more were used than charged: the tape is longer, so the windows to come pay for it."""
    used, at = drained(quota, state, now)
    return FixedWindowState(used + units, at)


def available(quota: FixedWindow, state: FixedWindowState, now: float) -> tuple[int, float]:
    """The whole units that can be taken now, and the microseconds until one more can be: 0 if all can."""
    used, _ = drained(quota, state, now)
    units = max(int(quota.limit - used + quota.slack), 0)
    if units + 1.0 > quota.limit:
        return int(quota.limit), 0.0
    return units, take(quota, state, now, units + 1.0, NEVER, 0.0)[1]


def reset_us(quota: FixedWindow, state: FixedWindowState, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters."""
    used, at = drained(quota, state, now)
    if used <= 0.0:
        return 0.0
    return at + math.ceil(used / quota.limit) * quota.period_us - now


def in_use(quota: FixedWindow, state: FixedWindowState, now: float) -> float:
    """The units that are used or booked, in the current window and those to come."""
    return drained(quota, state, now).used


def booked_ahead(quota: FixedWindow, state: FixedWindowState, now: float) -> float:
    """The units that are booked for later, and what later windows pay back."""
    return max(in_use(quota, state, now) - quota.limit, 0.0)
