"""Quotas as text: parsed from the form that people write, and explained in plain words.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from .errors import ConfigurationError, QuotaError
from .quotas import FixedWindow, InFlight, Quota, RollingWindow, TokenBucket, fitting_parts, in_units, require_few, span

EXAMPLES = (
    '"100/minute", "10/s burst 20; 1000/hour", "1000/hour fixed", "5000/day rolling", "100 per 15 minutes", "5 at once"'
)

# Names of buckets that stand beside those of quotas, under the same limiter and key.
RESERVED_NAMES = frozenset({"pause", "penalty-block", "penalty-blocks", "penalty-strikes"})

# Seconds in each unit of time, by each of its names.
UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("week", "weeks"), 604_800.0),
}

_WORD = re.compile(r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?|[A-Za-z]+|/|\S")


def parse_quotas(text: str, *, default_burst: float | None = None) -> tuple[Quota, ...]:
    """The quotas of a text such as ``"10/s burst 20; 1000/hour"``, in the same order.

    ``default_burst`` is the burst, in units, of a token bucket whose text does not name one (``None``: its limit).
    Raises ``QuotaError``, which quotes the text, points at the wrong part and shows valid examples.
    """
    if not isinstance(text, str):
        raise QuotaError(f"a quota is parsed from a text, not from {text!r}: {EXAMPLES}")
    quotas, start = [], 0
    for part in text.split(";"):
        quotas.append(_Parser(text, start, start + len(part)).quota(default_burst))
        start += len(part) + 1
    return tuple(quotas)


def parse_period(text: str) -> float:
    """The seconds of a text such as ``"10 minutes"`` or ``"day"``. Raises ``QuotaError``."""
    parser = _Parser(text, 0, len(text))
    seconds = parser.period()
    if parser.word:
        raise parser.error("is not expected here")
    return seconds


class _Parser:
    """Reads one quota from ``text[start:end]``, word by word."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.words = [(m.group(), m.start()) for m in _WORD.finditer(text, start, end)]
        self.end = end if text[start:end].strip() else start
        self.at = 0

    def quota(self, default_burst: float | None) -> Quota:
        limit = self.number("a limit such as 100")
        kind, more = self.kind(default_burst)
        if self.word:
            raise self.error("is not expected here")
        try:
            return kind(limit, *more)
        except QuotaError as error:
            raise QuotaError(f"{self.text!r}: {error}. Valid examples: {EXAMPLES}.") from error

    def kind(self, default_burst: float | None) -> tuple[Callable[..., Quota], list[float | None]]:
        """The kind of a quota, and what it has beside its limit: its period first, if it has one."""
        if self.accept("at"):
            if not self.accept("once"):
                raise self.error('is not "once"', '"once"')
            return InFlight, []
        if not self.accept("/", "per"):
            raise self.error('is not "/" or "per"', '"/" or "per" and a period')
        period = self.period()
        if self.accept("fixed"):
            return FixedWindow, [period]
        if self.accept("rolling"):
            parts = self.number("a number of parts") if self.is_number else fitting_parts(period)
            return RollingWindow, [period, parts]
        return TokenBucket, [period, self.number("a burst such as 20") if self.accept("burst") else default_burst]

    @property
    def word(self) -> str:
        return self.words[self.at][0].lower() if self.at < len(self.words) else ""

    @property
    def is_number(self) -> bool:
        return "0" <= self.word[:1] <= "9"

    def accept(self, *expected: str) -> bool:
        is_next = self.word in expected
        self.at += is_next
        return is_next

    def number(self, expected: str) -> float:
        word = self.word
        if not self.is_number:
            raise self.error(f"is not {expected}", expected)
        self.at += 1
        return float(word) if "." in word or len(word) > 16 else int(word)

    def period(self) -> float:
        count = self.number("a count") if self.is_number else 1
        unit = self.word
        if unit not in UNITS or self.words[self.at][0] == "M":
            raise self.error("is not a unit of time: s, m, h, d or week", "a unit of time")
        self.at += 1
        return count * UNITS[unit]

    def error(self, problem: str, missing: str = "") -> QuotaError:
        """The word that comes next is wrong, or, at the end, something is missing; a pointer shows where."""
        word, column = self.words[self.at] if self.word else ("", self.end)
        message = f"{word!r} {problem}" if word else f"{missing} is missing"
        pointer = " " * column + "^" * max(1, len(word))
        return QuotaError(f"{self.text!r}: {message}\n    {self.text}\n    {pointer}\nValid examples: {EXAMPLES}.")


# The type of every ``quota`` argument: a text, a quota, or several of them.
QuotaLike: TypeAlias = "str | Quota | Collection[str | Quota]"


def as_quotas(quota: QuotaLike, *, default_burst: float | None = None) -> tuple[Quota, ...]:
    """The quotas of a ``quota`` argument, each with a different name.

    Raises ``QuotaError`` for anything but quotas, ``ConfigurationError`` for two quotas with the same name, for a
    reserved one, and for more quotas than one take may charge.
    """
    quotas = tuple(_flatten(quota, default_burst))
    if not quotas:
        raise QuotaError(f"at least one quota is needed, not {quota!r}: {EXAMPLES}")
    require_few(sum([each.weight for each in quotas]))
    for each in reversed(quotas):
        is_reserved, name = each.name in RESERVED_NAMES, each.name
        if is_reserved or sum([other.name == name for other in quotas]) > 1:
            problem = f"the name {name!r} of a quota is reserved" if is_reserved else f"two quotas are named {name!r}"
            raise ConfigurationError(f"{problem}: {replace(each, name=f'my-{name}'[:64])!r}")
    return quotas


def _flatten(quota: QuotaLike, default_burst: float | None) -> Iterable[Quota]:
    if isinstance(quota, Quota):
        return [quota]
    if isinstance(quota, str):
        return parse_quotas(quota, default_burst=default_burst)
    if isinstance(quota, Collection) and not isinstance(quota, (bytes, bytearray, Mapping)):
        return [each for item in quota for each in _flatten(item, default_burst)]
    raise QuotaError(f"a quota is a text or a quota, not {quota!r}: {EXAMPLES}")


def as_text(quota: QuotaLike) -> str:
    """Quotas in the form that ``parse_quotas`` reads, without names, slower bursts and ``retry_after``."""
    return "; ".join(_written(each) for each in as_quotas(quota))


def readable(quota: Quota) -> str:
    """A quota in a message: its text, or its ``repr`` if no text says the same."""
    if getattr(quota, "burst_allowance_factor", 1.0) != 1.0 or getattr(quota, "retry_after", 1.0) != 1.0:
        return repr(quota)
    return f'"{as_text(quota)}"'


def _written(quota: Quota) -> str:
    if isinstance(quota, InFlight):
        return f"{quota.limit} at once"
    count, unit = in_units(quota.period)
    rate = _units(quota.limit) + (f"/{unit}" if count == 1 else f" per {_units(count)} {unit}s")
    if isinstance(quota, FixedWindow):
        return f"{rate} fixed"
    if isinstance(quota, RollingWindow):
        return f"{rate} rolling" + ("" if quota.buckets == fitting_parts(quota.period) else f" {quota.buckets}")
    return rate if quota.burst == max(1.0, math.floor(quota.limit)) else f"{rate} burst {_units(quota.burst)}"


def _units(units: float) -> str:
    """A number without an exponent that parses to the same number."""
    return f"{Decimal(repr(float(units))).normalize():f}"


def explain(quota: QuotaLike) -> str:
    """One plain sentence for each quota: how much it allows, and the most that may pass in one period."""
    return "\n".join(_explained(each) for each in as_quotas(quota))


def _explained(quota: Quota) -> str:
    if isinstance(quota, InFlight):
        return f"At most {quota.limit} at once, each of them until it ends."
    limit, period = f"{quota.limit:.10g}", span(quota.period)
    if isinstance(quota, FixedWindow):
        most = f"around a border of two windows up to {2 * quota.limit:.10g} may pass within that time"
        return f"At most {limit} in each {period}, in windows aligned to the Unix epoch; {most}."
    if isinstance(quota, RollingWindow):
        longer = f"a unit may count for up to {quota.period / quota.buckets:.10g} seconds longer than that"
        return f"At most {limit} in any {period}, without exception; {longer}."
    slowly = "" if quota.burst_allowance_factor == 1 else f" (the burst at {quota.burst_allowance_factor:g} times that)"
    most = f"in any {period} up to {quota.burst + quota.limit:.10g} may pass"
    return f"At most {quota.burst:.10g} at once, earned back at {limit} per {period}{slowly}; {most}."
