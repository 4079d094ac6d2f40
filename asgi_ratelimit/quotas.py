"""Quotas: how many units are allowed in how much time, as values.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias
from zlib import crc32

from .errors import ConfigurationError, QuotaError

SECOND_US = 1_000_000.0
MAX_UNITS = 2.0**53
"""The largest limit, burst or cost: above it, a double no longer holds every whole number."""
MAX_PERIOD = 400 * 86_400.0
"""The longest period, in seconds."""
MAX_REFILL = 100 * 366 * 86_400.0
"""The longest time in seconds from an empty bucket to a full one, so that microseconds stay exact."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
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

    period_us: float = field(init=False, repr=False, compare=False)
    rate: float = field(init=False, repr=False, compare=False)
    """Units that drain in a microsecond."""
    slow_rate: float = field(init=False, repr=False, compare=False)
    """Units that drain in a microsecond below the floor."""
    floor: float = field(init=False, repr=False, compare=False)
    """The units up to which the burst allowance reaches: ``burst - 1``."""
    slack: float = field(init=False, repr=False, compare=False)
    stamp: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = ""
    """The part of a bucket's text that shows its kind; see ``bucket_prefix``."""

    def __post_init__(self) -> None:
        _require_units("limit", self.limit, "TokenBucket(100, 60)")
        _require_period(self.period, "TokenBucket(100, 60)")
        if self.burst is None:
            _set(self, burst=max(1.0, math.floor(self.limit)))
        _require_units("burst", self.burst, "TokenBucket(10, burst=20)")
        if self.burst < 1:
            raise QuotaError(f"burst must be at least 1, not {self.burst!r}: TokenBucket(10, burst=20)")
        _require_factor(self.burst_allowance_factor)
        if self.burst * self.period > MAX_REFILL * self.limit * self.burst_allowance_factor:
            raise QuotaError(f"{self!r} takes over a hundred years to fill: lower the burst, or raise the limit")
        period_us = whole_us(self.period)
        rate = self.limit / period_us
        _set(
            self,
            name=_checked_name(self.name, self.period),
            period_us=period_us,
            rate=rate,
            slow_rate=rate * self.burst_allowance_factor,
            floor=self.burst - 1.0,
            slack=min(slack_of(self.burst), rate * self.burst_allowance_factor / 2.0),  # worth less than a microsecond
            stamp=_stamp(0, self.limit, period_us, self.burst, self.burst_allowance_factor),
        )

    weight: ClassVar[int] = 1
    """As how many charges of a take one charge of this quota counts."""

    @property
    def most(self) -> float:
        """The most units that can be granted at once."""
        return self.burst


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """At most ``limit`` units in each window of ``period`` seconds; windows are aligned to the Unix epoch.

    Around the border of two windows, up to twice the limit may pass at once.
    Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: float
    period: float
    name: str = None  # type: ignore[assignment]  # as above

    weight: ClassVar[int] = 1
    """As how many charges of a take one charge of this quota counts."""
    period_us: float = field(init=False, repr=False, compare=False)
    slack: float = field(init=False, repr=False, compare=False)
    stamp: int = field(init=False, repr=False, compare=False)
    kind: str = field(init=False, repr=False, compare=False)
    """The part of a bucket's text that shows its kind; see ``bucket_prefix``."""

    def __post_init__(self) -> None:
        period_us = _window_us(self.limit, self.period, "FixedWindow(1000, 3600)")
        _set(
            self,
            name=_checked_name(self.name, self.period),
            period_us=period_us,
            slack=slack_of(self.limit),
            stamp=_stamp(1, self.limit, period_us),
            kind=f"f{_in_seconds(period_us)}:",
        )

    @property
    def most(self) -> float:
        """The most units that can be granted at once."""
        return self.limit


@dataclass(frozen=True, slots=True)
class RollingWindow:
    """At most ``limit`` units in any interval of ``period`` seconds, counted in ``buckets`` equal parts of it.

    A unit counts until the whole of its part has left the window, so it may count for ``period / buckets`` seconds
    too long, and never too short. Raises ``QuotaError`` for numbers that are out of range.
    """

    limit: float
    period: float
    buckets: int = 60
    name: str = None  # type: ignore[assignment]  # as above

    period_us: float = field(init=False, repr=False, compare=False)
    slack: float = field(init=False, repr=False, compare=False)
    stamp: int = field(init=False, repr=False, compare=False)
    part_us: float = field(init=False, repr=False, compare=False)
    weight: int = field(init=False, repr=False, compare=False)
    """As how many charges of a take one charge of this quota counts."""
    kind: str = field(init=False, repr=False, compare=False)
    """The part of a bucket's text that shows its kind; see ``bucket_prefix``."""

    def __post_init__(self) -> None:
        period_us = _window_us(self.limit, self.period, "RollingWindow(1000, 3600)")
        _require_parts(self.buckets, period_us)
        _set(
            self,
            name=_checked_name(self.name, self.period),
            period_us=period_us,
            part_us=period_us / self.buckets,
            weight=ROLLING_WEIGHT + math.ceil(self.buckets / BUCKETS_OF_ONE),
            slack=slack_of(self.limit),
            stamp=_stamp(2, self.limit, period_us, self.buckets),
            kind=f"r{_in_seconds(period_us)}/{self.buckets}:",
        )

    @property
    def most(self) -> float:
        """The most units that can be granted at once."""
        return self.limit


Quota: TypeAlias = TokenBucket | FixedWindow | RollingWindow

MAX_PARTS = 1000
"""The most parts of a rolling window."""

MAX_CHARGES = 50
"""The most charges of one take, so that deciding it never holds a store for more than a few milliseconds."""

ROLLING_WEIGHT, BUCKETS_OF_ONE = 3, 30
"""A rolling window counts as three charges, and one more for each 30 of its buckets."""

MOST_IN_ONE_TAKE = (
    f"a take has at most {MAX_CHARGES} charges, where a rolling window counts as {ROLLING_WEIGHT} and one more for "
    f"each {BUCKETS_OF_ONE} of its buckets"
)
"""The start of errors about too many charges."""


def require_few(weight: int) -> None:
    """Raise ``ConfigurationError`` if charges of this total weight are too many for one take."""
    if weight > MAX_CHARGES:
        raise ConfigurationError(
            f"{MOST_IN_ONE_TAKE}, not {weight}: take fewer together, or use fewer buckets: "
            "RollingWindow(1000, 3600, 60)"
        )


def slack_of(units: float) -> float:
    """The units by which a comparison may be wrong: more than doubles lose, and less than anyone could use."""
    return max(1e-9, units * 1e-12)


def _stamp(*numbers: float) -> int:
    """The stamp of a quota's numbers, which tells whether a stored value was written under other ones."""
    return crc32(struct.pack(f"<{len(numbers)}d", *numbers))


def whole_us(seconds: float) -> float:
    """Seconds as whole microseconds, rounded up, so that no rate comes out too high."""
    exact = seconds * SECOND_US
    return float(round(exact) if _is_whole(exact) else math.ceil(exact))


def _is_whole(number: float) -> bool:
    """Whether a number is whole, up to the precision of a double."""
    return abs(number - round(number)) < 1e-3 + number / 2**50


def _set(quota: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(quota, name, value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _in_seconds(period_us: float) -> str:
    return f"{period_us / SECOND_US:.14g}"


def _require_units(what: str, value: object, example: str) -> None:
    if not _is_number(value) or not 0 < value <= MAX_UNITS:  # type: ignore[operator]
        raise QuotaError(f"{what} must be a finite number above 0, at most 2**53, not {value!r}: {example}")


def _require_period(value: object, example: str) -> None:
    if not _is_number(value) or not 1e-6 <= value <= MAX_PERIOD:  # type: ignore[operator]
        raise QuotaError(f"period must be seconds from 0.000001 to 400 days, not {value!r}: {example}")


def _window_us(limit: float, period: float, example: str) -> float:
    """The period of a window, whose borders must fall on whole microseconds; also raises for a wrong limit."""
    _require_units("limit", limit, example)
    if limit < 1:
        raise QuotaError(f"the limit of a window must be at least 1, not {limit!r}: {example}")
    _require_period(period, example)
    exact = period * SECOND_US
    if _is_whole(exact):
        return float(round(exact))
    raise QuotaError(f"the period of a window must be whole microseconds, not {period!r} s: {example}")


def _require_parts(buckets: object, period_us: float) -> None:
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 1 <= buckets <= MAX_PARTS:
        raise QuotaError(
            f"buckets must be a whole number from 1 to {MAX_PARTS}, not {buckets!r}: RollingWindow(1000, 3600, 60)"
        )
    if period_us % buckets:
        raise QuotaError(
            f"{buckets} buckets do not divide a period of {period_us:.0f} microseconds evenly, "
            f"{fitting_parts(period_us, buckets)} do: RollingWindow(1000, 3600, 60)"
        )


def fitting_parts(period_us: float, most: int = 60) -> int:
    """The largest number of parts, up to ``most``, that divides a period into whole microseconds."""
    return next(parts for parts in range(most, 0, -1) if period_us % parts == 0)


def _require_factor(value: object) -> None:
    if not _is_number(value) or not 0 < value <= 1:  # type: ignore[operator]
        raise QuotaError(
            "burst_allowance_factor must be above 0 and at most 1, "
            f"not {value!r}: TokenBucket(10, burst=20, burst_allowance_factor=0.5)"
        )


def _checked_name(name: object, period: float) -> str:
    if name is None:
        return period_name(period)
    if isinstance(name, str) and 0 < len(name) <= 64 and name.isascii() and name.isprintable():
        return name
    raise QuotaError(f'name must be 1 to 64 printable ASCII characters, not {name!r}: TokenBucket(10, name="reads")')


UNITS = {
    name: seconds
    for seconds, names in (
        (1.0, "s sec second seconds"),
        (60.0, "m min minute minutes"),
        (3600.0, "h hour hours"),
        (86_400.0, "d day days"),
        (604_800.0, "week weeks"),
    )
    for name in names.split()
}
"""Seconds in each unit of time, by each of its names."""
_LARGEST_FIRST = ("week", "day", "hour", "minute", "second")


def period_name(period: float) -> str:
    """The default name of a quota: ``per-minute`` for 60 seconds, ``per-15-minutes`` for 900."""
    count, unit = in_units(period)
    return f"per-{unit}" if count == 1 else f"per-{count:.10g}-{unit}s"


def in_units(period: float) -> tuple[float, str]:
    """A period as a whole number of the largest unit that allows it, or else in seconds."""
    unit = next((unit for unit in _LARGEST_FIRST if period % UNITS[unit] == 0), "second")
    return period / UNITS[unit], unit
