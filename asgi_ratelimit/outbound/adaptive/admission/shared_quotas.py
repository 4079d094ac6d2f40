"""The form of a learned bucket in the store that processes share: quotas, charges, and conditions.

All charges of a host have one key, so a request is one take, and on a cluster one call.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from ....buckets import as_bytes, digest
from ....decision import Charge, Condition, Take
from ....quotas import MAX_PERIOD, SECOND_US, Quota, RollingWindow, TokenBucket, fitting_parts
from ...sending.pauses import PAUSE
from ..server_buckets import Rate, ReportedBucket

NAME = "adaptive"
"""The name of the limiter whose buckets hold declared quotas, learned buckets and pauses."""

LEASE_S = 3.0
"""For how many seconds the pioneer of one process holds up the others. If it is dead by then, another one goes."""

LONG_WINDOW_S = 10.0
"""A window of a server that is at least this long is so long that nobody waits for its rolling window to end after
it."""

PARTS = 100
"""The most parts of the rolling window that stands for a window of a server."""

EXACT = 0.02
"""The part of itself by which a period may be rounded, so that processes agree on it although their answers differ."""

EQUAL = 0.05
"""Periods that differ by no more than this part of them are the same."""

MARGIN, LONGEST_MARGIN_S = 0.02, 0.05
"""By how much windows are longer here than at the server, because requests may overtake earlier ones on their way."""

LONGEST_PERIOD_US = MAX_PERIOD * SECOND_US / 2
"""A limit over a longer period is never charged."""

CACHED = 4096


def rate_of(bucket: ReportedBucket) -> Rate | None:
    """The rate to charge a bucket by: the known one, unless an answer has reported another; ``None`` if unknown."""
    learned, known = _learned(bucket), bucket.stored.rate
    if learned is None or known is None:
        return learned or known
    if learned.limit != known.limit:
        return learned
    if known.is_sure and not learned.is_sure:
        return known
    is_alike = learned.refills == known.refills and learned.burst == known.burst
    is_equal = is_alike and abs(known.period - learned.period) <= EQUAL * known.period
    return known._replace(is_sure=learned.is_sure) if is_equal else learned


def _learned(bucket: ReportedBucket) -> Rate | None:
    size, small = bucket.size, bucket.size.small_burst
    if bucket.is_probed or not 1.0 <= size.limit < math.inf or size.cost <= 0.0:
        return None
    period_us = size.limit / size.refill if size.refill else max(size.window_us, size.resets.unit_us)
    if not 1.0 <= period_us <= LONGEST_PERIOD_US:
        return None
    burst = 0.0 if small.stage == "window" else small.room
    if size.refill:
        is_sure = small.stage == "refill" or (not small.refills and size.resets.is_sure)
    else:
        is_sure = small.stage in ("window", "refused") or not (burst or size.is_next_unit)
    return Rate(size.limit, rounded(period_us / SECOND_US), size.refill > 0.0, is_sure, burst)


def rounded(seconds: float) -> float:
    """A time with as few digits as possible: 1 for 0.993, 60 for 59.2."""
    for digits in range(3):
        text = float(f"{seconds:.{digits}e}")
        if abs(text - seconds) <= EXACT * seconds:
            return text
    return float(f"{seconds:.2e}")


@lru_cache(maxsize=CACHED)
def learned_charge(host: str, bucket: str, rate: Rate, cost: float) -> Charge:
    """The charge of a request to a learned bucket.

    A window of a server begins at any time, so a rolling window stands for it, which is a little longer. If units come
    back one by one, one of them is left unused, and so is half of a small burst, so that requests that overtake others
    on their way are not refused. If a small burst may be all that there is, no more requests go than units come back in
    the time that answers may state.
    """
    name, (limit, period, refills, _, burst) = f"learned-{_hash(bucket)}", rate
    quota: Quota
    if refills:
        quota = TokenBucket(limit, period, max(burst // 2 if burst else limit - 1.0, 1.0), name=name)
    else:
        if burst:
            units, seconds = limit / period, math.ceil(period / limit)
            limit, period = max(min(burst, units * seconds // 1), 1.0), seconds
        longer = round(period + min(MARGIN * period, LONGEST_MARGIN_S), 6)
        quota = RollingWindow(limit, longer, fitting_parts(round(longer * SECOND_US), PARTS), name)
    return Charge(quota, host, min(cost, quota.most), NAME)


@lru_cache(maxsize=CACHED)
def pioneer_charge(host: str, bucket: str) -> Charge:
    """The charge of a pioneer, which it gives back when it has its answer. If the pioneer dies, the charge drains."""
    return Charge(TokenBucket(1, LEASE_S, 1, name=f"pioneer-{_hash(bucket)}"), host, 1, NAME)


def renewal_charge(host: str, bucket: str, rate: Rate) -> Charge:
    """The charge of the one process that empties a learned bucket when a window of its server has ended."""
    return Charge(TokenBucket(1, rate.period / 2.0, 1, name=f"renewal-{_hash(bucket)}"), host, 1, NAME)


@lru_cache(maxsize=CACHED)
def pause_condition(host: str, bucket: str) -> Condition:
    """The condition that no process has paused a bucket."""
    return Condition(pause_quota(bucket), host, 0, NAME)


@lru_cache(maxsize=CACHED)
def pause_quota(bucket: str) -> TokenBucket:
    """The quota of a bucket's pauses; see ``Pauses``."""
    return replace(PAUSE, name=f"pause-{_hash(bucket)}")


def used_up(charge: Charge, units: float) -> Take:
    """A take of ``units`` more of a learned bucket, or of what is left of it."""
    return Take((replace(charge, cost=max(units, charge.cost)),), best_effort=True)


def raised_to(charge: Charge, units: float) -> Take:
    """A take that fills a learned bucket until at least ``units`` of it are used."""
    quota = charge.quota
    if isinstance(quota, TokenBucket):
        lowered: Quota = replace(quota, burst=max(units, 1.0))
    else:
        lowered = replace(quota, limit=max(units, 1.0))
    object.__setattr__(lowered, "stamp", quota.stamp)  # so it is the same version, and shares its state
    raised = Charge(lowered, charge.key, min(units, lowered.most), charge.name)
    return Take((raised,), best_effort=True)


def _hash(bucket: str) -> str:
    return digest(as_bytes(bucket))[:16]
