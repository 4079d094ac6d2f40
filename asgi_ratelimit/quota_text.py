"""Quotas as text: parsed from the form that people write, and explained in plain words.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import TypeAlias, cast

from .errors import ConfigurationError, QuotaError
from .quotas import (
    MAX_PARTS,
    UNITS,
    FixedWindow,
    Quota,
    RollingWindow,
    TokenBucket,
    fitting_parts,
    in_units,
    require_few,
    whole_us,
)

EXAMPLES = '"100/minute", "10/s burst 20", "1000/hour fixed", "5000/day rolling", "100 per 15 minutes"'

RESERVED_NAMES = frozenset({"pause", "penalty-block", "penalty-blocks", "penalty-strikes"})
"""Names of buckets that stand beside those of quotas, under the same limiter and key."""

_EXAMPLE_OF_OBJECT = re.compile(r": \w+\(.*\)$")
"""The end of an error about a quota, which shows how to build one."""

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
    if parser.peek():
        raise parser.error("is not expected here")
    return seconds


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


_HINTS_OF_PERIODS = {
    "M": ', did you mean "minute"? A month is "30 days"',
    "month": ', did you mean "30 days"?',
    "months": ', did you mean "30 days" for each?',
    "year": ', did you mean "365 days"?',
    "ms": ', and none is shorter than a second: 1 in 10 ms is "100/s"',
}

_MEANT_NUMBER = re.compile(r"(?:([0-9]{1,3}(?:,[0-9]{3})+)|([0-9]+(?:\.[0-9]+)?)([kKM]))(?![0-9A-Za-z])")
"""A number that people write and no quota has: ``5,000``, ``5k`` or ``2M``."""

_MEANT_BURST = re.compile(r"[=:]\s*(?=[0-9])")

_KINDS = {"fixed": "fixed", "rolling": "rolling", "sliding": "rolling", "burst": "burst 20"}


def _hint(word: str, kind: str) -> str:
    """What a word after a rate, or after the kind of a quota, may mean."""
    if word in (",", "+", "&", "|", "and"):
        return ', and two quotas have ";" between them: "10/s; 1000/hour"'
    near = get_close_matches(word, _KINDS, 1)
    if not near or not kind:
        return f", did you mean {_KINDS[near[0]]!r}?" if near else ""
    if "burst" in (near[0], kind):
        return ": a quota has one burst" if near[0] == kind else ": a window has no burst"
    return ": a quota is of one kind, fixed or rolling"


class _Parser:
    """Reads one quota from ``text[start:end]``, word by word."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.words = [(m.group(), m.start()) for m in _WORD.finditer(text, start, end)]
        self.end = (text[start:end].rstrip() and end) or start
        self.stop = end
        self.at = 0
        self.read_kind = ""

    def quota(self, default_burst: float | None) -> Quota:
        if not self.words and (not self.text.strip() or self.stop < len(self.text)):
            raise self.pointing(
                'a quota is missing before ";"' if self.text.strip() else "a quota is missing, the text is empty"
            )
        limit = self.number("a limit such as 100")
        self.separator()
        period = self.period()
        build = self.kind(limit, period, default_burst)
        if self.peek():
            hint = self.meant_number() or _hint(self.peek(), self.read_kind)
            raise self.error(f"is not expected here{hint}")
        try:
            return build()
        except QuotaError as error:
            problem = _EXAMPLE_OF_OBJECT.sub("", str(error))
            raise QuotaError(f"{self.text!r}: {problem}. Valid examples: {EXAMPLES}.") from error

    def kind(self, limit: float, period: float, default_burst: float | None) -> Callable[[], Quota]:
        if self.accept("fixed"):
            return partial(FixedWindow, limit, period)
        if self.accept("rolling"):
            return partial(RollingWindow, limit, period, self.parts(period))
        burst = self.number("a burst such as 20", hint=self.meant_burst) if self.accept("burst") else default_burst
        return partial(TokenBucket, limit, period, burst)

    def accept(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.at += 1
        self.read_kind = word
        return True

    def parts(self, period: float) -> int:
        if not _is_digit(self.peek()[:1]):
            return fitting_parts(whole_us(period))
        parts = cast("int", self.number("a number of parts"))
        if isinstance(parts, int) and 1 <= parts <= MAX_PARTS and whole_us(period) % parts:
            self.at -= 1
            fitting = fitting_parts(whole_us(period), parts)
            raise self.error(f'does not divide the period into parts of whole microseconds: "rolling {fitting}" does')
        return parts

    def peek(self) -> str:
        return self.words[self.at][0].lower() if self.at < len(self.words) else ""

    def number(self, expected: str, *, hint: Callable[[], str] = str) -> float:
        word = self.peek()
        if not _is_digit(word[:1]):
            raise self.error(f"is not {expected}{hint()}", missing=expected)
        self.at += 1
        return float(word) if "." in word or len(word) > 16 else int(word)

    def separator(self) -> None:
        if self.peek() not in ("/", "per"):
            hint = self.meant_number()
            hint = self.without_noun() if hint is None else hint
            raise self.error(f'is not "/" or "per"{hint}', missing='"/" or "per" and a period')
        self.at += 1

    def without_noun(self) -> str:
        """A hint at what ``10 requests per minute``, ``10r/s`` or ``10 minutes`` may mean, if that is clear."""
        limit, *words = [word for word, _ in self.words]
        rest = words[2:] if words[1:2] in (["/"], ["per"]) else words
        return _suggested(f"{limit}{' per ' if _is_digit(rest[0][0]) else '/'}{' '.join(rest)}") if rest else ""

    def meant_number(self) -> str | None:
        """A hint at what ``5k/hour`` or ``5,000/hour`` may mean, after its first digits; ``None`` for other numbers."""
        start = self.words[self.at - 1][1]
        match = _MEANT_NUMBER.match(self.text, start, self.stop)
        if match is None:
            return None
        grouped, number, unit = match.groups()
        meant = grouped.replace(",", "") if grouped else _units(float(number) * (1e6 if unit == "M" else 1e3))
        return self.with_instead(start, match.end(), meant)

    def meant_burst(self) -> str:
        """A hint at what ``burst=20`` may mean."""
        start = self.words[self.at - 1][1] + len("burst")
        match = _MEANT_BURST.match(self.text, self.words[self.at][1], self.stop) if self.words[self.at :] else None
        return "" if match is None else self.with_instead(start, match.end(), " ")

    def with_instead(self, start: int, end: int, meant: str) -> str:
        """A suggestion of this quota with another text between two places, if that can be read."""
        return _suggested(f"{self.text[self.words[0][1] : start]}{meant}{self.text[end : self.stop].rstrip()}")

    def period(self) -> float:
        count = self.number("a count") if _is_digit(self.peek()[:1]) else 1
        is_month = self.at < len(self.words) and self.words[self.at][0] == "M"
        if is_month or self.peek() not in UNITS:
            near = get_close_matches(self.peek(), UNITS, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            hint = _HINTS_OF_PERIODS["M"] if is_month else _HINTS_OF_PERIODS.get(self.peek(), hint)
            raise self.error(f"is not a unit of time{hint}", missing="a unit of time")
        self.at += 1
        return count * UNITS[self.words[self.at - 1][0].lower()]

    def error(self, problem: str, *, missing: str = "") -> QuotaError:
        return self.pointing(
            f"{self.words[self.at][0]!r} {problem}" if self.words[self.at :] else f"{missing} is missing at its end"
        )

    def pointing(self, message: str) -> QuotaError:
        word, column = self.words[self.at] if self.at < len(self.words) else ("", self.end)
        pointer = " " * column + "^" * max(1, len(word))
        return QuotaError(f"{self.text!r}: {message}\n    {self.text}\n    {pointer}\nValid examples: {EXAMPLES}.")


def _suggested(text: str) -> str:
    """A suggestion of this text, if it can be read, so that no suggestion is wrong, too."""
    try:
        return f", did you mean {text!r}?" if parse_quotas(text) else ""
    except QuotaError:
        return ""


QuotaLike: TypeAlias = "str | Quota | Iterable[str | Quota]"
"""The type of every ``quota`` argument: a text, a quota, or several of them."""


def as_quotas(quota: QuotaLike, *, default_burst: float | None = None) -> tuple[Quota, ...]:
    """The quotas of a ``quota`` argument, each with a different name.

    Raises ``QuotaError`` for anything but quotas, ``ConfigurationError`` for two quotas with the same name, for a
    reserved one, and for more quotas than one take may charge.
    """
    quotas = tuple(_flatten(quota, default_burst))
    if not quotas:
        raise QuotaError(f"at least one quota is needed, not {quota!r}: {EXAMPLES}")
    require_few(sum([each.weight for each in quotas]))
    names = [each.name for each in quotas]
    for name in names:
        if name in RESERVED_NAMES:
            raise ConfigurationError(
                f"the name {name!r} of a quota is reserved for buckets of this package: "
                f"TokenBucket(10, 1.0, name='my-{name}')"
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two quotas are named {name!r}: give one a name, for example TokenBucket(10, 1.0, name='burst')"
            )
    return quotas


def _flatten(quota: QuotaLike, default_burst: float | None) -> Iterable[Quota]:
    if isinstance(quota, (TokenBucket, FixedWindow, RollingWindow)):
        return [quota]
    if isinstance(quota, str):
        return parse_quotas(quota, default_burst=default_burst)
    if isinstance(quota, Iterable) and not isinstance(quota, (bytes, bytearray, Mapping)):
        _require_no_numbers(quota)
        return [each for item in quota for each in _flatten(item, default_burst)]
    raise QuotaError(f"a quota is a text or a quota, not {quota!r}: {EXAMPLES}")


def _require_no_numbers(quotas: Iterable[object]) -> None:
    """Raise ``QuotaError`` for a limit and a period without a kind of quota."""
    if not isinstance(quotas, (tuple, list)) or not 2 <= len(quotas) <= 3:
        return
    if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in quotas):
        numbers = ", ".join(map(repr, quotas))
        raise QuotaError(f"a quota is a text, or TokenBucket({numbers}), not {quotas!r}: {EXAMPLES}")


def as_text(quota: QuotaLike) -> str:
    """Quotas in the form that ``parse_quotas`` reads, which cannot express their names or a slower burst."""
    return "; ".join(_written(each) for each in as_quotas(quota))


def readable(quota: Quota) -> str:
    """A quota in a message: its text, or its ``repr`` if no text says the same."""
    if isinstance(quota, TokenBucket) and quota.burst_allowance_factor != 1.0:
        return repr(quota)
    return f'"{as_text(quota)}"'


def _written(quota: Quota) -> str:
    count, unit = in_units(quota.period)
    period = f"/{unit}" if count == 1 else f" per {_units(count)} {unit}s"
    rate = f"{_units(quota.limit)}{period}"
    if isinstance(quota, FixedWindow):
        return f"{rate} fixed"
    if isinstance(quota, RollingWindow):
        usual = fitting_parts(quota.period_us)
        return f"{rate} rolling" if quota.buckets == usual else f"{rate} rolling {quota.buckets}"
    usual_burst = max(1.0, math.floor(quota.limit))
    return rate if quota.burst == usual_burst else f"{rate} burst {_units(quota.burst)}"


def _units(units: float) -> str:
    """A number without an exponent that parses to the same number."""
    return f"{Decimal(repr(float(units))).normalize():f}"


def explain(quota: QuotaLike) -> str:
    """One plain sentence for each quota: how much it allows, and the most that may pass in one period."""
    return "\n".join(_explained(each) for each in as_quotas(quota))


def _explained(quota: Quota) -> str:
    limit, each = _count(quota.limit), _each(quota.period)
    if isinstance(quota, FixedWindow):
        return (
            f"At most {limit} in each window of {_span(quota.period)}, aligned to the Unix epoch; "
            f"around a border of two windows up to {_count(2 * quota.limit)} may pass within {_span(quota.period)}."
        )
    if isinstance(quota, RollingWindow):
        return (
            f"At most {limit} in any {each}, without exception; "
            f"a unit may count for up to {_span(quota.period / quota.buckets)} longer than that."
        )
    slowly = "" if quota.burst_allowance_factor == 1 else f" (the burst at {quota.burst_allowance_factor:g} times that)"
    return (
        f"At most {_count(quota.burst)} at once, earned back at {limit} per {each}{slowly}; "
        f"in any {each} up to {_count(quota.burst + quota.limit)} may pass."
    )


def _count(units: float) -> str:
    return f"{units:.10g}"


def _span(period: float) -> str:
    count, unit = in_units(period)
    return f"{count:.10g} {unit}" + ("s" if count != 1 else "")


def _each(period: float) -> str:
    """The text after ``per`` or ``any``: ``minute``, or ``15 minutes``."""
    return _span(period).removeprefix("1 ")
