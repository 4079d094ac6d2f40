"""Numbers and times in the forms that servers send. An unreadable text is ``None``, and no text raises an exception.

Every text is short, so every function takes a bounded time. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_TEXT = 100
"""The most characters of a number or a time."""

SHORT = 20
"""The most digits of a whole number."""

EPOCH_SECONDS = 1e9
"""From here on, a time without a unit is in seconds since 1970 ..."""

EPOCH_MILLISECONDS = 1e11
"""... and from here on in milliseconds. Anything smaller is seconds from now."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,2})?")

_PART_OF_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?)(d|h|ms|m|s|us|µs|ns)")
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([12][0-9]{3}) ([0-9]{2}:[0-9]{2}:[0-9]{2}) GMT")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = {name: f"{number:02}" for number, name in enumerate(_MONTHS, 1)}

_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?P<seconds>:[0-9]{2}(?:[.,][0-9]{1,9})?)?"
    r"(?:[Zz]| ?[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_JAVASCRIPT = re.compile(
    r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) (?P<day>[0-9]{1,2}) (?P<year>[0-9]{4}) (?P<time>[0-9:]{8}) "
    r"(?:GMT|UTC)(?P<zone>[+-][0-9]{4})(?: \([^()]*\))?"
)


def number(text: str | float | None) -> float | None:
    """A decimal number."""
    if text is None or isinstance(text, float | int):
        return text
    if len(text) <= SHORT and text.isascii() and text.isdigit():
        return float(text)
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST_TEXT else None
    return float(match[0]) if match else None


def duration(text: str) -> float | None:
    """Seconds of a duration in Go's form: ``1s``, ``6m0s``, ``20ms``, ``1h2.5s``."""
    if len(text) > LONGEST_TEXT:
        return None
    seconds, at, text = 0.0, 0, text.strip()
    while match := _PART_OF_DURATION.match(text, at):
        seconds += float(match[1]) * _SECONDS[match[2]]
        at = match.end()
    return seconds if text and at == len(text) else None


def unix_time(text: str | None) -> float | None:
    """The Unix time of a date: ISO 8601, an HTTP-date in any of its three forms, or JavaScript's form.

    A date of ISO 8601 to the minute is the end of that minute. A date without a time zone is in UTC.
    """
    text = (text or "").strip()
    if not text or len(text) > LONGEST_TEXT:
        return None
    try:
        usual = _HTTP_DATE.fullmatch(text)
        if usual is not None and usual[2] in _MONTH:
            return datetime.fromisoformat(f"{usual[3]}-{_MONTH[usual[2]]}-{usual[1]}T{usual[4]}+00:00").timestamp()
        iso = _ISO.fullmatch(text)
        if iso is not None:
            return _timestamp(_iso(text)) + (0.0 if iso["seconds"] else 60.0)
        return _timestamp(_javascript(text) or parsedate_to_datetime(text))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def _iso(text: str) -> datetime:
    """A date of ISO 8601, with a zone directly after the time, and microseconds at most."""
    text = re.sub(r"([.,][0-9]{6})[0-9]+", r"\1", text).replace(",", ".").upper()
    return datetime.fromisoformat(re.sub(r" ([+-])", r"\1", text))


def _javascript(text: str) -> datetime | None:
    match = _JAVASCRIPT.fullmatch(text)
    return match and parsedate_to_datetime("{day} {month} {year} {time} {zone}".format(**match.groupdict()))


def _timestamp(at: datetime) -> float:
    seconds = (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def seconds_until(text: str | float, unit: str, server_now: float | None) -> float | None:
    """Seconds from now until a time in a unit, 0 for a time in the past; ``None`` if it is unknown.

    ``server_now`` is the present by the clock that wrote the time: without it, only times from now on are known.
    """
    value = number(text)
    if value is None:
        at = unix_time(str(text)) if unit == "auto" else None
        seconds = duration(str(text)) if unit == "auto" else None
        value = None if at is None or server_now is None else at - server_now
        value = value if seconds is None else seconds
    elif is_since_1970(value, unit):
        value = None if server_now is None else value / _scale(value, unit) - server_now
    elif value < 0:
        value = None
    elif unit == "ms":
        value /= 1000.0
    return None if value is None or math.isnan(value) else max(value, 0.0)


def is_since_1970(value: float, unit: str) -> bool:
    """Whether a number counts from 1970, and not from now."""
    return unit in ("epoch", "epoch-ms") or (unit == "auto" and value >= EPOCH_SECONDS)


def _scale(value: float, unit: str) -> float:
    return 1000.0 if unit == "epoch-ms" or (unit == "auto" and value >= EPOCH_MILLISECONDS) else 1.0
