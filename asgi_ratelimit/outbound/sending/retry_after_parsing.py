"""When to come back, by the headers of an answer.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

THROTTLED = (429, 503)
"""The statuses of a service that wants its clients to come back later (RFC 6585, RFC 9110)."""

LONGEST_PAUSE = 86_400.0
"""The longest pause, in seconds, that an answer can ask for; a longer one is ignored."""

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")


def pause_of(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds for which an answer, received at the Unix time ``now``, asks to pause; ``None`` if it does not ask.

    The names of ``headers`` are in lower case. Milliseconds, which some vendors send, are more exact and come first.
    ``Retry-After`` is a number of seconds, with decimals although RFC 9110 allows none, or a date. A date counts from
    the date of the answer, because clocks differ.
    """
    if status not in THROTTLED:
        return None
    waits = [_number(headers.get(name), 1000.0) for name in _MILLISECONDS]
    waits += [_number(headers.get("retry-after"), 1.0), _until(headers.get("retry-after"), headers.get("date"), now)]
    return next((wait for wait in waits if wait is not None), None)


def _number(text: str | None, scale: float) -> float | None:
    try:
        seconds = float(text or "") / scale
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST_PAUSE else None  # false for NaN, too


def _until(text: str | None, date: str | None, now: float) -> float | None:
    at, since = _time(text), _time(date)
    if at is None:
        return None
    wait = max(at - (now if since is None else since), 0.0)
    return wait if wait <= LONGEST_PAUSE else None


def _time(text: str | None) -> float | None:
    """The Unix time of an HTTP-date, in any of its three forms (RFC 9110, section 5.6.7)."""
    try:
        at = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    seconds = (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
    return seconds if math.isfinite(seconds) else None
