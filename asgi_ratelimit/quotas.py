"""Quotas: rules of arithmetic, as values, and the text form that people write them in.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from .errors import ConfigurationError, QuotaError

SECOND_US = 1_000_000.0
MAX_UNITS = 2.0**53
"""The largest limit, burst or cost: above it a double no longer counts in ones."""
MAX_PERIOD = 400 * 86_400.0
"""The longest period, in seconds."""
MAX_REFILL = 100 * 366 * 86_400.0
"""The longest time in seconds that an empty bucket may take to fill, so that microseconds stay exact."""

EXAMPLES = '"100/minute", "10/s burst 20", "100 per 15 minutes"'


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """At most ``burst`` units at once from idle, and ``limit`` units for each ``period`` after that.

    ``limit`` and ``burst`` are in units, ``period`` in seconds. A leaky bucket as a meter: the level rises by the
    cost of each request and drains at ``limit / period``. In any interval of length T at most
    ``burst + T * limit / period`` units are admitted. ``burst=None`` means ``max(1, floor(limit))``.

    With ``burst_allowance_factor`` f < 1, the part of the level within the burst allowance (below ``burst - 1``)
    drains at f times the rate: a burst is earned back more slowly, while the sustained rate stays the same.
    With f = 1 this is the generic cell rate algorithm (ITU-T I.371).

    Raises ``QuotaError`` for numbers that cannot be.
    """

    limit: float
    period: float = 1.0
    burst: float = cast("float", None)
    burst_allowance_factor: float = 1.0
    name: str = cast("str", None)

    period_us: float = field(init=False, repr=False, compare=False)
    cap: float = field(init=False, repr=False, compare=False)
    """The level of a full burst: ``burst`` scaled by the period."""
    line: float = field(init=False, repr=False, compare=False)
    """The level below which the burst allowance lies: ``burst - 1`` scaled by the period."""
    slow: float = field(init=False, repr=False, compare=False)
    """The drain below the line, for each microsecond."""
    hashed: int = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # None only asks for the default: once built, burst and name are never None

        def __init__(
            self,
            limit: float,
            period: float = 1.0,
            burst: float | None = None,
            burst_allowance_factor: float = 1.0,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _require_units("limit", self.limit, "TokenBucket(100, 60)")
        _require_period(self.period)
        if self.burst is None:
            _set(self, burst=max(1.0, math.floor(self.limit)))
        _require_units("burst", self.burst, "TokenBucket(10, burst=20)")
        if self.burst < 1:
            raise QuotaError(f"burst must be at least 1, not {self.burst!r}: TokenBucket(10, burst=20)")
        _require_factor(self.burst_allowance_factor)
        if self.burst * self.period / self.limit > MAX_REFILL:
            raise QuotaError(f"{self!r} would take over a hundred years to fill: lower the burst or raise the limit")
        period_us = whole_us(self.period)
        _set(
            self,
            name=_checked_name(self.name, self.period),
            period_us=period_us,
            cap=self.burst * period_us,
            line=(self.burst - 1) * period_us,
            slow=self.burst_allowance_factor * self.limit,
        )
        _set(self, hashed=hash((self.name, self.limit, self.period, self.burst, self.burst_allowance_factor)))

    def __hash__(self) -> int:
        return self.hashed

    @property
    def most(self) -> float:
        """The most units that one take can ever be granted at once."""
        return self.burst


Quota: TypeAlias = TokenBucket


def whole_us(seconds: float) -> float:
    """Seconds as whole microseconds; what is not whole is rounded up, so that no rate comes out too high."""
    exact = seconds * SECOND_US
    nearest = float(round(exact))
    return nearest if abs(exact - nearest) < 1e-3 else float(math.ceil(exact))


def _set(quota: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(quota, name, value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require_units(what: str, value: object, example: str) -> None:
    if not _is_number(value) or not 0 < value <= MAX_UNITS:  # type: ignore[operator]
        raise QuotaError(f"{what} must be a finite number above 0, at most 2**53, not {value!r}: {example}")


def _require_period(value: object) -> None:
    if not _is_number(value) or not 1e-6 <= value <= MAX_PERIOD:  # type: ignore[operator]
        raise QuotaError(f"period must be seconds from 0.000001 to 400 days, not {value!r}: TokenBucket(100, 60)")


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


_UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86_400.0,
    "day": 86_400.0,
    "days": 86_400.0,
    "week": 604_800.0,
    "weeks": 604_800.0,
}
_NAMED_UNITS = ("week", "day", "hour", "minute", "second")


def period_name(period: float) -> str:
    """The default name of a quota: ``per-minute`` for 60 seconds, ``per-15-minutes`` for 900."""
    unit = next((u for u in _NAMED_UNITS if period % _UNITS[u] == 0), "second")
    count = period / _UNITS[unit]
    return f"per-{unit}" if count == 1 else f"per-{count:.10g}-{unit}s"


_WORD = re.compile(r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?|[A-Za-z]+|/|\S")


def parse_quotas(text: str, *, default_burst: float | None = None) -> tuple[Quota, ...]:
    """The quotas that a text such as ``"10/s burst 20; 1000/hour"`` stands for, in its order.

    ``default_burst`` is the burst in units of a token bucket whose text names none (``None``: its limit).
    Raises ``QuotaError``, which quotes the text, points at the wrong part and shows right ones.
    """
    if not isinstance(text, str):
        raise QuotaError(f"a quota is written as text, not {text!r}: {EXAMPLES}")
    quotas, start = [], 0
    for part in text.split(";"):
        quotas.append(_Parser(text, start, start + len(part)).quota(default_burst))
        start += len(part) + 1
    return tuple(quotas)


class _Parser:
    """Reads one quota from ``text[start:end]``, word by word."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.words = [(m.group(), m.start()) for m in _WORD.finditer(text, start, end)]
        self.end = (text[start:end].rstrip() and end) or start
        self.at = 0

    def quota(self, default_burst: float | None) -> Quota:
        limit = self.number("a limit such as 100")
        self.separator()
        period = self.period()
        burst = default_burst
        if self.peek() == "burst":
            self.at += 1
            burst = self.number("a burst such as 20")
        if self.peek():
            raise self.error("is not understood here")
        try:
            return TokenBucket(limit, period, burst)
        except QuotaError as error:
            raise QuotaError(f"{self.text!r}: {error}") from error

    def peek(self) -> str:
        return self.words[self.at][0].lower() if self.at < len(self.words) else ""

    def number(self, wanted: str) -> float:
        word = self.peek()
        if not word[:1].isdigit():
            raise self.error(f"stands where {wanted} belongs", missing=wanted)
        self.at += 1
        return float(word) if "." in word else int(word)

    def separator(self) -> None:
        if self.peek() not in ("/", "per"):
            raise self.error('stands where "/" or "per" belongs', missing='"/" or "per" and a period')
        self.at += 1

    def period(self) -> float:
        count = self.number("a count") if self.peek()[:1].isdigit() else 1
        if self.peek() not in _UNITS:
            raise self.error("is not a unit of time", missing="a unit of time")
        self.at += 1
        return count * _UNITS[self.words[self.at - 1][0].lower()]

    def error(self, problem: str, *, missing: str = "") -> QuotaError:
        found = self.at < len(self.words)
        word, column = self.words[self.at] if found else ("", self.end)
        said = f"{word!r} {problem}" if found else f"{missing} is missing at its end"
        pointer = " " * column + "^" * max(1, len(word))
        return QuotaError(f"{self.text!r}: {said}\n    {self.text}\n    {pointer}\nRight ones are {EXAMPLES}.")


QuotaLike: TypeAlias = "str | Quota | Iterable[str | Quota]"
"""What every ``quota`` argument takes: a text, a quota, or several of them."""


def as_quotas(quota: QuotaLike, *, default_burst: float | None = None) -> tuple[Quota, ...]:
    """The quotas of a ``quota`` argument, each with a name of its own.

    Raises ``QuotaError`` for what is no quota, ``ConfigurationError`` for two of one name.
    """
    quotas = tuple(_flatten(quota, default_burst))
    if not quotas:
        raise QuotaError(f"at least one quota is needed, not {quota!r}: {EXAMPLES}")
    names = [each.name for each in quotas]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two quotas are named {name!r}: give one a name, for example TokenBucket(10, 1.0, name='burst')"
            )
    return quotas


def _flatten(quota: QuotaLike, default_burst: float | None) -> Iterable[Quota]:
    if isinstance(quota, TokenBucket):
        return [quota]
    if isinstance(quota, str):
        return parse_quotas(quota, default_burst=default_burst)
    if isinstance(quota, Iterable):
        return [each for item in quota for each in _flatten(item, default_burst)]
    raise QuotaError(f"a quota is a text or a quota, not {quota!r}: {EXAMPLES}")
