"""What a memory store holds of a bucket, and what that tells of its use.

A value is bytes, so that the garbage collector has nothing to walk. That of a plain token bucket starts with the time
at which it is full again, and the rest of what has to be known is in its stamp. Any other starts with two times, at
which the bucket is full again and at which it has room for a unit again, and the part of its quota that is in use.
"""

from __future__ import annotations

import struct

from ...algorithms import Outlook
from ...algorithms.packed import PLAIN
from ...quotas import BURST_SCALE, Quota

_PLAIN_VALUE = struct.Struct("<d" + PLAIN)
pack_plain, unpack_plain, PLAIN_VALUE_SIZE = _PLAIN_VALUE.pack, _PLAIN_VALUE.unpack, _PLAIN_VALUE.size
_FULL_AT = struct.Struct("<d")
_TIMES = struct.Struct("<ddd")
_PLAIN_USE = struct.Struct("<dxffH")

UNUSED = _TIMES.pack(0.0, 0.0, 0.0)
"""The value of a bucket that has been reset."""

FULL, REFUSES = 0.0, 2.0
"""The use of a bucket that is full again, and of one without room for a unit."""

_ROUNDING = 1e-6
"""What a stamp rounds the numbers of a quota by, and more."""


def value_of(quota: Quota, packed: bytes, now: float, outlook: Outlook) -> bytes:
    """The value of a state, packed, with this outlook at the time ``now``."""
    units, more_us, full_us = outlook
    if len(packed) + _FULL_AT.size == PLAIN_VALUE_SIZE:
        return _FULL_AT.pack(now + full_us) + packed
    room_at = now + more_us if units < 1.0 else 0.0
    return _TIMES.pack(now + full_us, room_at, 1.0 - min(units / quota.most, 1.0)) + packed


def packed_in(value: bytes) -> bytes:
    """The packed state in a value; empty for a bucket that has been reset."""
    return value[_FULL_AT.size if len(value) == PLAIN_VALUE_SIZE else _TIMES.size :]


def use_of(value: bytes, now: float) -> float:
    """The part of the quota that is in use: ``FULL`` for a full bucket, ``REFUSES`` for one without a unit left."""
    if len(value) != PLAIN_VALUE_SIZE:
        full_at, room_at, use = _TIMES.unpack_from(value)
        if full_at <= now:
            return FULL
        return REFUSES if room_at > now else use
    full_at, period_us, limit, scaled_log_burst = _PLAIN_USE.unpack_from(value)
    if full_at <= now:
        return FULL
    level, burst = (full_at - now) * limit / period_us, _burst(scaled_log_burst)
    return REFUSES if level > burst - 1.0 + burst * _ROUNDING else level / burst


def _burst(scaled_log: int) -> float:
    """The burst that a stamp tells by its logarithm, which is a rounded one: exactly, or a little less."""
    burst: float = 2.0 ** (scaled_log / BURST_SCALE)
    whole = round(burst)
    if whole < BURST_SCALE / 2 and abs(burst - whole) < burst / BURST_SCALE:
        return whole
    return float(2.0 ** ((scaled_log - 0.5) / BURST_SCALE))


def free_at(value: bytes) -> float:
    """When a bucket that refuses has room for a unit again."""
    if len(value) != PLAIN_VALUE_SIZE:
        full_at, at, _ = _TIMES.unpack_from(value)
        return float(min(full_at, at))
    full_at, period_us, limit, scaled_log_burst = _PLAIN_USE.unpack_from(value)
    burst = _burst(scaled_log_burst)
    return float(full_at - (burst - 1.0 + burst * _ROUNDING) * period_us / limit)
