"""``margin``: the part of a limit that stays unused, for jitter on the way to a service that counts for itself.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import ConfigurationError
from ..quota_text import QuotaLike, as_quotas
from ..quotas import SECOND_US, Quota, RollingWindow, TokenBucket


def with_margin(quotas: Sequence[Quota], margin: float) -> tuple[Quota, ...]:
    """Quotas with the same names and bursts, whose limits are lower by the fraction ``margin``.

    The limit of a window stays at least 1. A rolling window gets longer instead, so that each call may be late by the
    difference, wherever the service's own window begins.

    Raises ``ConfigurationError`` unless ``margin`` is a number from 0 to below 1.
    """
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0 <= margin < 1:  # true for NaN, too
        raise ConfigurationError(f"margin is the part of the limit that stays unused, not {margin!r}: margin=0.05")
    return tuple([_with_margin(quota, margin) for quota in quotas]) if margin else tuple(quotas)


def reads_with_margin(default_burst: float, margin: float) -> Callable[[QuotaLike], tuple[Quota, ...]]:
    """A function that makes quotas with this margin from a ``quota`` argument, including that of an override."""
    return lambda quota: with_margin(as_quotas(quota, default_burst=default_burst), margin)


def _with_margin(quota: Quota, margin: float) -> Quota:
    if isinstance(quota, RollingWindow):
        return replace(quota, period=math.ceil(quota.part_us / (1.0 - margin)) * quota.buckets / SECOND_US)
    limit = quota.limit * (1.0 - margin)
    return replace(quota, limit=limit if isinstance(quota, TokenBucket) else max(limit, 1.0))
