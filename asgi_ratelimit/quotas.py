"""Quotas: how many units are allowed in how much time, as values.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from zlib import crc32

from .errors import ConfigurationError, QuotaError

SECOND_US = 1_000_000.0
# The largest limit, burst or cost: above it, a double no longer holds every whole number.
MAX_UNITS = 2.0**53
# The longest period, in seconds.
MAX_PERIOD = 400 * 86_400.0
# The least number above 0.
LEAST = math.ulp(0.0)
# The longest time in seconds from an empty bucket to a full one, so that microseconds stay exact.
MAX_REFILL = 100 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Derived:
    """What is worked out from the arguments of a quota when it is built."""

    period_us: float = field(init=False, repr=False, compare=False)
    # The most units that can be granted at once.
    most: float = field(init=False, repr=False, compare=False)
    # As how many charges of a take one charge of this quota counts.
    weight: int = field(init=False, repr=False, compare=False)
    # The part of a bucket's text that shows its kind; see ``bucket_prefix``.
    kind: str = field(init=False, repr=False, compare=False)
    # The units by which a comparison may be wrong: more than doubles lose, and less than anyone could use.
    slack: float = field(init=False, repr=False, compare=False)
    # Tells whether a stored value was written under other numbers of the quota.
    stamp: int = field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TokenBucket(_Derived):
    """At most ``burst`` units at once from idle, and ``limit`` units for each ``period`` after that.

    ``limit`` and ``burst`` are in units, ``period`` in seconds. A leaky bucket as a meter: the level rises by the
    cost of each request and drains at ``limit / period``. In any interval of length T at most
    ``burst + T * limit / period`` units are admitted. ``burst=None`` means ``max(1, floor(limit))``.

    With ``burst_allowance_factor`` f < 1, the part of the level within the burst allowance (below ``burst - 1``)
    drains at f times the rate: a burst is earned back more slowly, while the sustained rate stays the same.
    With f = 1 this is the generic cell rate algorithm (ITU-T I.371).

    Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: float
    period: float = 1.0
    burst: float = None  # type: ignore[assignment]  # stands for the default; once built, it is a number
    burst_allowance_factor: float = 1.0
    name: str = None  # type: ignore[assignment]  # as above

    # Units that drain in a microsecond.
    rate: float = field(init=False, repr=False, compare=False)
    # Units that drain in a microsecond below the floor.
    slow_rate: float = field(init=False, repr=False, compare=False)
    # The units below which the bucket drains slowly, which is the burst allowance; 0 without one.
    floor: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(self, "limit", LEAST, MAX_UNITS, "a finite number above 0, at most 2**53")
        if self.burst is None:
            object.__setattr__(self, "burst", max(1.0, math.floor(self.limit)))
        _require(self, "burst", 1, MAX_UNITS, "at least 1 and at most 2**53")
        _require(self, "burst_allowance_factor", LEAST, 1, "above 0 and at most 1")
        period_us = _checked_period_us(self)
        rate = self.limit / period_us
        slow_rate = rate * self.burst_allowance_factor
        if self.burst * self.period > MAX_REFILL * self.limit * self.burst_allowance_factor:
            raise QuotaError(f"{self!r} takes over a hundred years to fill: lower the burst, or raise the limit")
        numbers = 0, self.limit, period_us, self.burst, self.burst_allowance_factor
        slack = min(_slack_of(self.burst), slow_rate / 2.0)  # worth less than a microsecond
        floor = self.burst - 1.0 if slow_rate < rate else 0.0
        _derive(self, numbers, most=self.burst, slack=slack, rate=rate, slow_rate=slow_rate, floor=floor)


@dataclass(frozen=True, slots=True)
class FixedWindow(_Derived):
    """At most ``limit`` units in each window of ``period`` seconds; windows are aligned to the Unix epoch.

    Around the border of two windows, up to twice the limit may pass at once.
    Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: float
    period: float
    name: str = None  # type: ignore[assignment]  # as above

    def __post_init__(self) -> None:
        _require(self, "limit", 1, MAX_UNITS, "at least 1 and at most 2**53")
        period_us = _checked_period_us(self)
        _derive(self, (1, self.limit, period_us), kind=f"f{period_us / SECOND_US:.14g}:")


@dataclass(frozen=True, slots=True)
class RollingWindow(_Derived):
    """At most ``limit`` units in any interval of ``period`` seconds, counted in ``buckets`` equal parts of it.

    A unit counts until the whole of its part has left the window, so it may count for ``period / buckets`` seconds
    too long, and never too short. Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: float
    period: float
    buckets: int = 60
    name: str = None  # type: ignore[assignment]  # as above

    # The length of a part.
    part_us: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(self, "limit", 1, MAX_UNITS, "at least 1 and at most 2**53")
        _require(self, "buckets", 1, MAX_PARTS, f"a whole number from 1 to {MAX_PARTS}", int)
        period_us = _checked_period_us(self)
        if period_us % self.buckets:
            problem = f"{self.buckets} buckets do not divide a period of {period_us:.0f} microseconds evenly"
            right = fitting_parts(self.period, self.buckets)
            raise QuotaError(f"{problem}, {right} do: RollingWindow({self.limit!r}, {self.period!r}, {right})")
        numbers, kind = (2, self.limit, period_us, self.buckets), f"r{period_us / SECOND_US:.14g}/{self.buckets}:"
        weight = ROLLING_WEIGHT + math.ceil(self.buckets / BUCKETS_OF_ONE)
        _derive(self, numbers, weight=weight, kind=kind, part_us=period_us / self.buckets)


@dataclass(frozen=True, slots=True)
class InFlight(_Derived):
    """At most ``limit`` requests or calls at once: each holds one place, whatever its cost, until it ends.

    ``limit`` is a whole number from 1 to 1000. Nobody knows when the next place comes back, so whoever is refused is
    told to try again after ``retry_after`` seconds. A place is a lease of 30 seconds, which its process renews: those
    of a process that was killed come back then. Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: int
    name: str = None  # type: ignore[assignment]  # as above
    retry_after: float = field(default=1.0, kw_only=True)

    # The same in microseconds.
    retry_us: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(self, "limit", 1, MAX_PARTS, f"a whole number from 1 to {MAX_PARTS}", int)
        _require(self, "retry_after", 1e-6, MAX_PERIOD, "seconds from 0.000001 to 400 days")
        weight = ROLLING_WEIGHT + math.ceil((self.limit + MOST_QUEUED) / BUCKETS_OF_ONE)
        retry_us = whole_us(self.retry_after)
        _derive(self, (3, self.limit, LEASE_US), weight=weight, kind="i:", slack=0.0, retry_us=retry_us)


Quota: TypeAlias = TokenBucket | FixedWindow | RollingWindow | InFlight


def has_places(quotas: Iterable[Quota]) -> bool:
    """Whether requests hold a place of any of these quotas until they end."""
    return any(type(quota) is InFlight for quota in quotas)


# The length of a lease, which stands for the period of ``InFlight``.
LEASE_US = 30.0 * SECOND_US

# The most callers that wait in the store for a place of one bucket.
MOST_QUEUED = 100

# The most parts of a rolling window.
MAX_PARTS = 1000

# The most charges of one take, so that deciding it never holds a store for more than a few milliseconds.
MAX_CHARGES = 50

# A rolling window counts as three charges, and one more for each 30 of its buckets; the same for leases.
ROLLING_WEIGHT, BUCKETS_OF_ONE = 3, 30


def require_few(weight: int) -> None:
    """Raise ``ConfigurationError`` if charges of this total weight are too many for one take."""
    if weight > MAX_CHARGES:
        most = f"{MAX_CHARGES} charges, and a rolling window or InFlight counts as several, more if it is larger"
        fewer = "take fewer together, or use fewer buckets: RollingWindow(1000, 3600, 60)"
        raise ConfigurationError(f"a take has at most {most}, not {weight}: {fewer}")


def _require(quota: Quota, name: str, least: float, most: float, expected: str, kind: Any = (int, float)) -> None:
    """Raise ``QuotaError`` unless this argument is a number of this kind in a range."""
    value = getattr(quota, name)
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
        right = "InFlight(5, retry_after=10)" if isinstance(quota, InFlight) else f"{type(quota).__name__}(1000, 3600)"
        raise QuotaError(f"{name} must be {expected}, not {value!r}: {right}")


def _checked_period_us(quota: TokenBucket | FixedWindow | RollingWindow) -> float:
    """The period in whole microseconds, rounded up."""
    _require(quota, "period", 1e-6, MAX_PERIOD, "seconds from 0.000001 to 400 days")
    return whole_us(quota.period)


def _derive(quota: Quota, numbers: tuple[float, ...], **own: object) -> None:
    """Set what is worked out: ``own``, and for all else what is usual. ``numbers`` are those that decide."""
    if quota.name is None:
        own["name"] = "at-once" if isinstance(quota, InFlight) else f"per-{span(quota.period).replace(' ', '-')}"
    elif not isinstance(quota.name, str) or not re.fullmatch("[ -~]{1,64}", quota.name):
        raise QuotaError(f"name must be 1 to 64 printable ASCII characters, not {quota.name!r}: name='reads'")
    usual = {"period_us": numbers[2], "most": quota.limit, "weight": 1, "kind": "", "slack": _slack_of(quota.limit)}
    stamp = crc32(struct.pack(f"<{len(numbers)}d", *numbers))
    for name, value in {**usual, "stamp": stamp, **own}.items():
        object.__setattr__(quota, name, value)


def _slack_of(units: float) -> float:
    return min(max(1e-9, units * 1e-12), 0.5)


def whole_us(seconds: float) -> float:
    """Seconds as whole microseconds, rounded up, so that no rate comes out too high."""
    exact = seconds * SECOND_US
    return float(math.ceil(exact - 1e-3 - exact / 2**50))  # up to the precision of a double


def fitting_parts(period: float, most: int = 60) -> int:
    """The largest number of parts, up to ``most``, that divides a period in seconds into whole microseconds."""
    return next(parts for parts in range(most, 0, -1) if whole_us(min(period, MAX_PERIOD)) % parts == 0)


def in_units(period: float) -> tuple[float, str]:
    """A period as a whole number of the largest unit that allows it, or else in seconds."""
    units = {"week": 604_800.0, "day": 86_400.0, "hour": 3600.0, "minute": 60.0}
    unit = next((unit for unit, seconds in units.items() if period % seconds == 0), "second")
    return period / units.get(unit, 1.0), unit


def span(period: float) -> str:
    """A period in words, as they stand after "per": ``minute``, or ``15 minutes``."""
    count, unit = in_units(period)
    return unit if count == 1 else f"{count:.10g} {unit}s"
