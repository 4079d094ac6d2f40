"""Versions of a token bucket: the same bucket under another limit, burst or period, as while a new version rolls out.

Each version decides on a state of its own, and the other one's value is carried along as ``older`` while it means
anything. So both together never admit more than both quotas, and neither locks out the callers of the other.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct

from ..quotas import BUCKET_FORMAT, TokenBucket
from .state import State

ANEW = 1 << 47
"""A generation differs by this where a state is made from that of another version; births are below it."""

_PERIOD = slice(1, 5)
_NUMBERS = struct.Struct("<BfffdHId")


def is_version(value: bytes) -> bool:
    """Whether a value is one of a token bucket, whatever its numbers are."""
    if len(value) < _NUMBERS.size:
        return False
    format_, period_us, limit, burst, last, _, _, level = _NUMBERS.unpack_from(value)
    are_finite = all(map(math.isfinite, (period_us, limit, burst, last, level)))
    return bool(format_ == BUCKET_FORMAT and are_finite and period_us > 0 and limit > 0)


def of_version(quota: TokenBucket, stored: State, stamp: bytes, older: bytes) -> State:
    """The state of a quota that is made from one that was ``stored`` under another ``stamp``; see ``older`` there.

    What was used stays used, up to the burst. What is booked ahead keeps its slots, and nobody else waits for them.
    """
    level, last, generation, _, _, _ = stored
    if stamp[_PERIOD] != quota.stamp[_PERIOD]:
        (period_us,) = struct.unpack("<f", stamp[_PERIOD])
        level = float(math.ceil(level / period_us * quota.period_us))
    return (min(level, quota.burst_level), last, generation ^ ANEW, (), (), older)


def older_reset_us(quota: TokenBucket, older: bytes, now: float) -> float:
    """Microseconds until the value of the other version means nothing any more; below 0 if it has been so for long."""
    _, _, limit, _, last, _, _, level = _NUMBERS.unpack_from(older)
    return float(last + math.ceil(level / (limit * (quota.slow_rate / quota.limit))) - now)
