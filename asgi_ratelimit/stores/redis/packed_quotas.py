"""A quota as bytes, by which the script decides, and which it stores with an operation."""

from __future__ import annotations

import struct
from functools import lru_cache

from ...quota_stamps import BUCKET_FORMAT
from ...quotas import (
    FIXED_FORMAT,
    ROLLING_FORMAT,
    SECOND_US,
    FixedWindow,
    Quota,
    RollingWindow,
    TokenBucket,
)

_QUOTA = struct.Struct("<8sdddddd")

SIZE = _QUOTA.size


@lru_cache(maxsize=4096)
def packed_quota(quota: Quota) -> bytes:
    """The numbers of a quota, as ``rate_limit.lua`` describes them."""
    return _QUOTA.pack(quota.stamp, quota.period_us, quota.limit, quota.most, *_own_numbers(quota))


def _own_numbers(quota: Quota) -> tuple[float, float, float]:
    match quota:
        case TokenBucket():
            return quota.slow_rate, quota.burst_level, quota.burst_floor
        case RollingWindow():
            return quota.buckets, quota.part_us, 0.0
        case FixedWindow():
            return 0.0, 0.0, 0.0


def quota_in(packed: bytes, likely: Quota) -> Quota:
    """The quota in these bytes, under the name of ``likely``, which is returned if it is equal.

    Raises ``struct.error`` for other bytes.
    """
    if packed == packed_quota(likely):
        return likely
    stamp, period_us, limit, most, first, _, _ = _QUOTA.unpack(packed)
    period = period_us / SECOND_US
    try:
        if stamp[0] == BUCKET_FORMAT:
            return TokenBucket(limit, period, most, _factor(first, limit), name=likely.name)
        if stamp[0] == FIXED_FORMAT:
            return FixedWindow(limit, period, name=likely.name)
        if stamp[0] == ROLLING_FORMAT:
            return RollingWindow(limit, period, int(first), name=likely.name)
    except (ArithmeticError, ValueError):
        pass
    raise struct.error(f"{packed!r} is not a quota")


def _factor(slow_rate: float, limit: float) -> float:
    """The factor with the fewest digits that turns this limit into this rate."""
    exact = slow_rate / limit
    short = float(f"{exact:.15g}")
    return short if short * limit == slow_rate else exact
