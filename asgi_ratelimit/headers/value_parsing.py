"""Numbers and times in the forms that servers send. An unreadable text is ``None``, and no text raises an exception.

Every text is short, so every function takes a bounded time. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_TEXT = 100
"""The most characters of a number or a time."""

EPOCH_SECONDS = 1e9
"""From here on, a time without a unit is in seconds since 1970 ..."""

EPOCH_MILLISECONDS = 1e11
"""... and from here on in milliseconds. Anything smaller is seconds from now."""

_NUMBER = re.compile(r"([+-]?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,2})?)[ ]*(?:;.*)?")
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{0,15})?(?:d|h|ms|m|s|us|µs|ns))+")
_PART_OF_DURATION = re.compile(r"([0-9.]+)([a-zµ]+)")
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TO_THE_MINUTE = re.compile(r"[^:]*:[0-9]{2}(?![0-9:]).*")
_JAVASCRIPT = re.compile(r"[A-Za-z]{3} ([A-Za-z]{3} [0-9]{1,2}) ([0-9]{4}) ([0-9:]{8}) (?:GMT|UTC)([+-][0-9]{4}).*")


def number(text: str | None) -> float | None:
    """A decimal number, perhaps with the parameters of a structured field: ``76;w=21600``."""
    match = _NUMBER.fullmatch(text.strip()) if text is not None and len(text) <= LONGEST_TEXT else None
    return float(match[1]) if match else None


def duration(text: str) -> float | None:
    """Seconds of a duration in Go's form: ``1s``, ``6m0s``, ``20ms``, ``1h2.5s``."""
    text = text.strip()
    if len(text) > LONGEST_TEXT or not _DURATION.fullmatch(text):
        return None
    return sum(float(units) * _SECONDS[unit] for units, unit in _PART_OF_DURATION.findall(text))


def unix_time(text: str | None) -> float | None:
    """The Unix time of a date: ISO 8601, an HTTP-date in any of its three forms, or JavaScript's form.

    A date of ISO 8601 to the minute is the end of that minute. A date without a time zone is in UTC.
    """
    text = (text or "").strip()
    if not text or len(text) > LONGEST_TEXT:
        return None
    try:
        if text[0].isdigit():
            at = datetime.fromisoformat(re.sub(r" (?=[+-])", "", text).upper())
        else:
            at = parsedate_to_datetime(_JAVASCRIPT.sub(r"\1 \3 \2 \4", text))
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return at.timestamp() + (60.0 if text[0].isdigit() and _TO_THE_MINUTE.fullmatch(text) else 0.0)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def seconds_until(text: str, unit: str, server_now: float | None) -> float | None:
    """Seconds from now until a time in a unit, 0 for a time in the past; ``None`` if it is unknown.

    ``server_now`` is the present by the clock that wrote the time: without it, only times from now on are known.
    """
    value, at = number(text), None
    if value is None and unit == "auto":
        value = duration(text)
        at = unix_time(text) if value is None else None
    elif value is not None and (unit == "epoch-ms" or (unit == "auto" and value >= EPOCH_MILLISECONDS)):
        at = value / 1000.0
    elif value is not None and (unit == "epoch" or (unit == "auto" and value >= EPOCH_SECONDS)):
        at = value
    elif value is not None and unit == "ms":
        value /= 1000.0
    if at is not None:
        return None if server_now is None else max(at - server_now, 0.0)
    return value if value is not None and value >= 0 else None


_WAITS = {"retry-after-ms": "ms", "x-ms-retry-after-ms": "ms", "retry-after": "auto"}


def asked_waits(headers: Mapping[str, str], server_now: float | None) -> list[float]:
    """The waits that a refusal asks for, in seconds: those in milliseconds, which are more exact, come first.

    The names of ``headers`` are in lower case.
    """
    waits = [seconds_until(headers[name], unit, server_now) for name, unit in _WAITS.items() if name in headers]
    return [wait for wait in waits if wait is not None]
