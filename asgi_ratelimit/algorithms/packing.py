"""Stored values: a state as bytes, the same in memory and in Redis.

Little-endian: B the format, which tells the kind; I4 the stamp of the quota's numbers; and the numbers of the state as
doubles. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeAlias

from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .fixed_window import FixedWindowState, start_of
from .rolling_window import RollingWindowState
from .take import ALGORITHMS, State
from .token_bucket import TokenBucketState, state_of

TOKEN_BUCKET, FIXED_WINDOW, ROLLING_WINDOW = 20, 21, 22
"""The formats. A change of what the numbers mean needs another one: older values then count as never used."""

_BUCKET = struct.Struct("<BI4d")
_FIXED = struct.Struct("<BI2d")
_ROLLING = struct.Struct("<BId")
_PART = struct.Struct("<2d")

_TIME = struct.Struct("<d")
_AT, _AT_OF_ROLLING = 13, 5
"""Where the time of a state is in its value."""

MOST_PARTS = 2048
"""The most parts that are read: the largest window, and as many parts that are booked ahead."""

LARGEST = 2.0**63
"""No number of a state is larger, nor below 0."""


def pack(quota: Quota, state: State) -> bytes:
    """The value of a state."""
    if type(state) is TokenBucketState:
        used, at, since, returned = state
        return _BUCKET.pack(TOKEN_BUCKET, quota.stamp, used, at, since, returned)
    if type(state) is FixedWindowState:
        return _FIXED.pack(FIXED_WINDOW, quota.stamp, *state)
    at, parts = state  # type: ignore[misc]  # it is a rolling window's
    head = _ROLLING.pack(ROLLING_WINDOW, quota.stamp, at)
    return head + b"".join([_PART.pack(*part) for part in parts])  # type: ignore[union-attr]


def read(quota: Quota, value: bytes | None, now: float) -> State:
    """The state in a value, at a time that may be before it, under a quota that may have been another one.

    No value, or one that cannot be read, is a bucket that was never used.
    """
    found = None if value is None else _UNPACK[type(quota)](quota, value)
    if found is None:
        unused: State = ALGORITHMS[type(quota)].unused(quota, now)
        return unused
    stamp, state = found
    if stamp != quota.stamp:
        state = ALGORITHMS[type(quota)].changed(quota, state, now)
    if state.at > now:
        state = ALGORITHMS[type(quota)].moved_back(quota, state, now)
    return state


def is_ahead(value: bytes | None, now: float) -> bool:
    """Whether a value is of a time after ``now``, as the clock went back since."""
    place = _AT_OF_ROLLING if value and value[0] == ROLLING_WINDOW else _AT
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
    elif value[:1] == bytes([ROLLING_WINDOW]) and not (len(value) - _ROLLING.size) % _PART.size:
        parts = tuple(_PART.iter_unpack(value[_ROLLING.size :]))
        units = sum([count for _, count in parts]) if _are_parts(parts) else math.nan
    return float(units) if 0.0 <= units <= LARGEST else None


def stamp_of(value: bytes) -> int:
    """The stamp of the quota that a value was written under."""
    return int.from_bytes(value[1:5], "little")


Unpacked: TypeAlias = tuple[int, State] | None
"""The stamp and the state in a value; ``None`` if it is damaged, of an older format or of another kind."""


def _unpack_bucket(quota: Quota, value: bytes) -> Unpacked:
    try:
        kind, stamp, used, at, since, returned = _BUCKET.unpack(value)
    except struct.error:  # it has another length
        return None
    is_valid = kind == TOKEN_BUCKET and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    if is_valid and -LARGEST <= since <= LARGEST and 0.0 <= returned <= LARGEST:
        return stamp, state_of((used, at, since, returned))
    return None


def _unpack_fixed(quota: Quota, value: bytes) -> Unpacked:
    if len(value) != _FIXED.size:
        return None
    kind, stamp, used, at = _FIXED.unpack(value)
    is_valid = kind == FIXED_WINDOW and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    if is_valid and start_of(quota, at) == at:  # type: ignore[arg-type]  # it is a fixed window
        return stamp, FixedWindowState(used, at)
    return None


def _unpack_rolling(quota: Quota, value: bytes) -> Unpacked:
    size = len(value) - _ROLLING.size
    if size < 0 or size % _PART.size or size > MOST_PARTS * _PART.size:
        return None
    kind, stamp, at = _ROLLING.unpack_from(value)
    parts = tuple(_PART.iter_unpack(value[_ROLLING.size :]))
    if kind == ROLLING_WINDOW and 0.0 <= at <= LARGEST and _are_parts(parts):
        return stamp, RollingWindowState(at, parts)
    return None


def _are_parts(parts: tuple[tuple[float, float], ...]) -> bool:
    """Whether these are parts in order, each with units."""
    before = -math.inf
    for index, units in parts:
        if not (before < index <= LARGEST and index == math.floor(index) and 0.0 < units <= LARGEST):
            return False
        before = index
    return True


_UNPACK: dict[type[Quota], Callable[[Quota, bytes], Unpacked]] = {
    TokenBucket: _unpack_bucket,
    FixedWindow: _unpack_fixed,
    RollingWindow: _unpack_rolling,
}
