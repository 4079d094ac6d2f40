"""Stored values: a state as bytes, the same in memory and in Redis.

Little-endian: B the format, which tells the kind; I4 the stamp of the quota's numbers; and the numbers of the state as
doubles. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ..quotas import FixedWindow, InFlight, Quota, RollingWindow, TokenBucket
from .fixed_window import FixedWindowState, start_of
from .in_flight import InFlightState
from .rolling_window import RollingWindowState
from .take import ALGORITHMS, State
from .token_bucket import TokenBucketState, state_of

# The formats. A change of what the numbers mean needs another one: older values then count as never used.
TOKEN_BUCKET, FIXED_WINDOW, ROLLING_WINDOW, IN_FLIGHT = 20, 21, 22, 23

_WITH_PARTS: dict[type[Quota], int] = {RollingWindow: ROLLING_WINDOW, InFlight: IN_FLIGHT}

_BUCKET = struct.Struct("<BI4d")
_FIXED = struct.Struct("<BI2d")
_ROLLING = struct.Struct("<BId")
_PART = struct.Struct("<2d")

_TIME = struct.Struct("<d")
# Where the time of a state is in its value.
_AT, _AT_OF_ROLLING = 13, 5

# The most parts that are read: the largest window, and as many parts that are booked ahead.
MOST_PARTS = 2048

# No number of a state is larger, nor below 0.
LARGEST = 2.0**63


def pack(quota: Quota, state: State) -> bytes:
    """The value of a state."""
    if type(state) is TokenBucketState:
        used, at, since, returned = state
        return _BUCKET.pack(TOKEN_BUCKET, quota.stamp, used, at, since, returned)
    if type(state) is FixedWindowState:
        return _FIXED.pack(FIXED_WINDOW, quota.stamp, *state)
    at, parts = state  # type: ignore[misc]  # it has parts, as a rolling window
    head = _ROLLING.pack(_WITH_PARTS[type(quota)], quota.stamp, at)
    return head + b"".join([_PART.pack(*part) for part in parts])  # type: ignore[union-attr]


def read(quota: Quota, value: bytes | None, now: float) -> State:
    """The state in a value, at a time that may be before it, under a quota that may have been another one.

    No value, or one that cannot be read, is a bucket that was never used.
    """
    is_valid = value is not None and _IS_VALID[type(quota)](quota, value)
    return read_own(quota, value if is_valid else None, now)


def read_own(quota: Quota, value: bytes | None, now: float) -> State:
    """The same for a value that ``pack`` has made in this process, which is not checked."""
    state: State
    if value is None:
        state = ALGORITHMS[type(quota)].unused(quota, now)
        return state
    if type(quota) is TokenBucket:
        _, stamp, used, at, since, returned = _BUCKET.unpack(value)
        state = state_of((used, at, since, returned))
    elif type(quota) is FixedWindow:
        _, stamp, used, at = _FIXED.unpack(value)
        state = FixedWindowState(used, at)
    else:
        _, stamp, at = _ROLLING.unpack_from(value)
        parts = tuple(_PART.iter_unpack(value[_ROLLING.size :]))
        state = RollingWindowState(at, parts) if type(quota) is RollingWindow else InFlightState(at, parts)
    if stamp != quota.stamp:
        state = ALGORITHMS[type(quota)].changed(quota, state, now)
    if at > now:
        state = ALGORITHMS[type(quota)].moved_back(quota, state, now)
    return state


def is_ahead(value: bytes | None, now: float) -> bool:
    """Whether a value is of a time after ``now``, as the clock went back since."""
    place = _AT_OF_ROLLING if value and value[0] >= ROLLING_WINDOW else _AT
    if value is None or len(value) < place + _TIME.size:
        return False
    (at,) = _TIME.unpack_from(value, place)
    return bool(at > now)


def used_units(value: bytes, now: float, left_us: float) -> float | None:
    """About how many units a value holds at a time, if it is as good as never used ``left_us`` later.

    ``None`` if it is not a value. Its quota is unknown: what is used of a token bucket drains evenly.
    """
    units = math.nan
    if value[:1] == bytes([TOKEN_BUCKET]) and len(value) == _BUCKET.size:
        _, _, used, at, _, _ = _BUCKET.unpack(value)
        elapsed = max(now - at, 0.0)
        units = used * left_us / (left_us + elapsed) if left_us > 0.0 else 0.0
    elif value[:1] == bytes([FIXED_WINDOW]) and len(value) == _FIXED.size:
        units = _FIXED.unpack(value)[2]
    elif value[:1] and value[0] in _WITH_PARTS.values() and not (len(value) - _ROLLING.size) % _PART.size:
        parts = tuple(_PART.iter_unpack(value[_ROLLING.size :]))
        if _are_parts(parts):
            units = sum([count > now if value[0] == IN_FLIGHT else count for _, count in parts])
    return float(units) if 0.0 <= units <= LARGEST else None


def stamp_of(value: bytes) -> int:
    """The stamp of the quota that a value was written under."""
    return int.from_bytes(value[1:5], "little")


def _is_bucket(quota: Quota, value: bytes) -> bool:
    if len(value) != _BUCKET.size:
        return False
    kind, _, used, at, since, returned = _BUCKET.unpack(value)
    is_valid = kind == TOKEN_BUCKET and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    return bool(is_valid and -LARGEST <= since <= LARGEST and 0.0 <= returned <= LARGEST)


def _is_fixed(quota: FixedWindow, value: bytes) -> bool:
    if len(value) != _FIXED.size:
        return False
    kind, _, used, at = _FIXED.unpack(value)
    is_valid = kind == FIXED_WINDOW and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    return bool(is_valid and start_of(quota, at) == at)


def _has_parts(quota: Quota, value: bytes) -> bool:
    size = len(value) - _ROLLING.size
    if size < 0 or size % _PART.size or size > MOST_PARTS * _PART.size:
        return False
    kind, _, at = _ROLLING.unpack_from(value)
    parts = tuple(_PART.iter_unpack(value[_ROLLING.size :]))
    return bool(kind == _WITH_PARTS[type(quota)] and 0.0 <= at <= LARGEST and _are_parts(parts))


def _are_parts(parts: tuple[tuple[float, float], ...]) -> bool:
    """Whether these are parts in order, each with units."""
    before = -math.inf
    for index, units in parts:
        if not (before < index <= LARGEST and index == math.floor(index) and 0.0 < units <= LARGEST):
            return False
        before = index
    return True


# Whether a value is one of this kind: not damaged, of an older format or of another kind.
_IS_VALID: dict[type[Quota], Callable[[Any, bytes], bool]] = {
    TokenBucket: _is_bucket,
    FixedWindow: _is_fixed,
    RollingWindow: _has_parts,
    InFlight: _has_parts,
}
