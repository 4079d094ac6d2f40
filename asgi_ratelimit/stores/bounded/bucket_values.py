"""The value that a memory store holds for a bucket, and the use of the bucket that the value shows.

A value is bytes, so that the garbage collector has nothing to walk. The value of a plain token bucket that drains at
one rate is its packed state: its stamp holds everything else that must be known. Any other value starts with two times,
at which the bucket is full again and at which it has room for a unit again, and the part of its quota that is in use.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ...algorithms import Outlook
from ...algorithms.packed_states import PLAIN_SIZE, unpack_plain
from ...quota_stamps import least_burst, numbers_in
from ...quotas import Quota

_TIMES = struct.Struct("<ddd")

UNUSED = _TIMES.pack(0.0, 0.0, 0.0)
"""The value of a bucket that has been reset."""

FULL, REFUSES = 0.0, 2.0
"""The use of a bucket that is full again, and of one without room for a unit."""


def value_of(quota: Quota, packed: bytes, now: float, outlook: Outlook) -> bytes:
    """The value of a packed state with this outlook at the time ``now``."""
    if len(packed) == PLAIN_SIZE and quota.is_simple:
        return packed
    units, more_us, full_us = outlook
    room_at = now + more_us if units < 1.0 else 0.0
    return _TIMES.pack(now + full_us, room_at, 1.0 - min(units / quota.most, 1.0)) + packed


def packed_in(value: bytes) -> bytes:
    """The packed state in a value; empty for a bucket that has been reset."""
    return value if len(value) == PLAIN_SIZE else value[_TIMES.size :]


def use_of(value: bytes, now: float) -> float:
    """The part of the quota that is in use: ``FULL`` for a full bucket, ``REFUSES`` for one without a unit left."""
    if len(value) != PLAIN_SIZE:
        full_at, room_at, use = _TIMES.unpack_from(value)
        if full_at <= now:
            return FULL
        return REFUSES if room_at > now else use
    stamp, last, level, _ = unpack_plain(value)
    period_us, limit, burst, most_used = _numbers(stamp)
    left = level - (now - last) * limit
    if left <= 0.0:
        return FULL
    return REFUSES if left > most_used else left / period_us / burst


def free_at(value: bytes) -> float:
    """The time at which a bucket that refuses has room for a unit again."""
    if len(value) != PLAIN_SIZE:
        full_at, at, _ = _TIMES.unpack_from(value)
        return float(min(full_at, at))
    stamp, last, level, _ = unpack_plain(value)
    _, limit, _, most_used = _numbers(stamp)
    return float(last + (level - most_used) / limit)


@lru_cache(maxsize=1024)
def _numbers(stamp: bytes) -> tuple[float, float, float, float]:
    """The period in microseconds, the limit and the burst in a stamp, and the highest level with room for a unit."""
    period_us, limit, code = numbers_in(stamp)
    burst = least_burst(code, limit)
    return period_us, limit, burst, (burst - 1.0) * period_us
