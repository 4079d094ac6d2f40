"""The limiter of calls: quotas without a burst, of which a margin may stay unused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any

from ..errors import ConfigurationError, checked_name
from ..limiter.limiter import Limiter
from ..quota_text import QuotaLike, as_quotas
from ..quotas import SECOND_US, Quota, RollingWindow, TokenBucket, has_places

# The burst of a quota whose text does not name one: calls are spaced evenly.
EVEN_BURST = 1.0


class OutboundLimiter(Limiter):
    """A limiter of calls, by quotas with this ``margin``, under a ``name`` of its own, or under the ``usual`` one.

    A text without a burst has a burst of 1 here; elsewhere, its burst is its limit. Raises as ``reads_with_margin``.
    """

    def __init__(self, quota: QuotaLike, margin: float, name: str | None, usual: str, **options: Any) -> None:
        self.margin, self._read, self._is_named = margin, reads_with_margin(margin), name is not None
        super().__init__(quota, name=usual if name is None else name, **options)

    def _own_name(self, quotas: Iterable[Quota]) -> None:
        """Own a name that was given to it; others may have other quotas under the usual one."""
        if self._is_named:
            super()._own_name(quotas)

    def renamed(self, name: str) -> OutboundLimiter:
        """The same limiter under another name."""
        other = copy(self)
        other.name = checked_name(name)
        other._begin(self.live.own)
        return other


def reads_with_margin(margin: float) -> Callable[[QuotaLike], tuple[Quota, ...]]:
    """A function that makes quotas with this margin from a ``quota`` argument, including that of an override.

    ``margin`` is the part of a limit that stays unused, for jitter on the way to a service that counts for itself.
    Names and bursts stay, and the limit of a window is at least 1. A rolling window gets longer instead, so that each
    call may be late by the difference, wherever the service's own window begins.
    Raises ``ConfigurationError`` unless it is a number from 0 to below 1.
    """
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0 <= margin < 1:  # true for NaN, too
        raise ConfigurationError(f"margin is the part of the limit that stays unused, not {margin!r}: margin=0.05")

    def read(quota: QuotaLike) -> tuple[Quota, ...]:
        quotas = as_quotas(quota, default_burst=EVEN_BURST)
        if has_places(quotas):
            right = 'PacedTransport(transport, "20/s", concurrency=3), or async with Limiter("3 at once").hold("key")'
            raise ConfigurationError(f"calls are paced by rates, and are never at once, not {quota!r}: {right}")
        return tuple([_with_margin(quota, margin) for quota in quotas]) if margin else quotas

    return read


def _with_margin(quota: Quota, margin: float) -> Quota:
    if isinstance(quota, RollingWindow):
        return replace(quota, period=math.ceil(quota.part_us / (1.0 - margin)) * quota.buckets / SECOND_US)
    limit: Any = quota.limit * (1.0 - margin)
    return replace(quota, limit=limit if isinstance(quota, TokenBucket) else max(limit, 1.0))
