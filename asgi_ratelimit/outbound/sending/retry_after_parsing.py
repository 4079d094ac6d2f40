"""When to come back, according to the headers of an answer.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...headers.value_parsing import number, unix_time

THROTTLED = (429, 503)
"""The statuses with which a service asks its clients to come back later (RFC 6585, RFC 9110)."""

LONGEST_PAUSE = 86_400.0
"""The longest pause, in seconds, that an answer can ask for; a longer one is ignored."""

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")


def pause_of(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds for which an answer, received at the Unix time ``now``, asks to pause; ``None`` if it does not ask.

    The names of ``headers`` are in lower case. Milliseconds, which some vendors send, are more exact and come first.
    ``Retry-After`` is a number of seconds, for which decimals are accepted although RFC 9110 allows none, or a date, in
    the forms that ``headers.parse`` also reads. A date counts from the date of the answer, because clocks differ.
    """
    if status not in THROTTLED:
        return None
    waits = [_number(headers.get(name), 1000.0) for name in _MILLISECONDS]
    waits += [_number(headers.get("retry-after"), 1.0), _until(headers.get("retry-after"), headers.get("date"), now)]
    return next((wait for wait in waits if wait is not None), None)


def _number(text: str | None, scale: float) -> float | None:
    value = number(text)
    return value / scale if value is not None and 0 <= value / scale <= LONGEST_PAUSE else None


def _until(text: str | None, date: str | None, now: float) -> float | None:
    at, since = unix_time(text), unix_time(date)
    if at is None:
        return None
    wait = max(at - (now if since is None else since), 0.0)
    return wait if wait <= LONGEST_PAUSE else None
