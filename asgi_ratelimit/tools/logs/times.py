"""The times of log lines, as whole microseconds since the Unix epoch.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from datetime import UTC, datetime

EXAMPLES = "[10/Oct/2026:13:55:36 +0000], 2026-10-10T13:55:36.25Z or 1791640536.25"

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""The names of the months, in every locale."""

_SECONDS, _MILLISECONDS, _MICROSECONDS = 1e11, 1e14, 1e17
"""Below these, a number counts seconds, milliseconds or microseconds since the epoch; above, nanoseconds."""


class CommonTimes:
    """Reads the times of the common log format, such as ``10/Oct/2026:13:55:36 +0000``.

    Consecutive lines mostly share their minute, which is parsed once.
    """

    def __init__(self) -> None:
        self._latest = ("", 0.0)
        self._minute = ("", "", 0.0)

    def time_us(self, text: str) -> float:
        """The time of a text. Raises ``ValueError`` for any other text."""
        latest, time_us = self._latest
        if text == latest:
            return time_us
        start, zone, minute_us = self._minute
        if text[:17] != start or text[20:] != zone:
            minute_us = _minute_us(text)
            self._minute = (text[:17], text[20:], minute_us)
        time_us = minute_us + int(text[18:20]) * 1_000_000
        self._latest = (text, time_us)
        return time_us


def _minute_us(text: str) -> float:
    """The start of the minute of a time in the common log format."""
    day, month, year = int(text[:2]), _MONTHS.index(text[3:6]) + 1, int(text[7:11])
    sign, hours, minutes = text[21:22], int(text[22:24]), int(text[24:26])
    if text[2] + text[6] + text[11] + text[14] + text[17] != "//:::" or sign not in ("+", "-") or len(text) != 26:
        raise ValueError(f"{text!r} is not a time of the common log format: {EXAMPLES}")
    start = datetime(year, month, day, int(text[12:14]), int(text[15:17]), tzinfo=UTC).timestamp()
    offset = (hours * 60 + minutes) * 60
    time_us = (start - offset if sign == "+" else start + offset) * 1e6
    if time_us <= 0.0:
        raise ValueError(f"{text!r} is before 1970: {EXAMPLES}")
    return time_us


def time_us_of(value: object) -> float:
    """The time of a value of a JSON line: ISO 8601 (UTC unless it says otherwise), or a number since the epoch.

    The size of a number shows whether it counts seconds, milliseconds, microseconds or nanoseconds.
    Raises ``ValueError`` for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{value!r} is not a time: {EXAMPLES}")
    if isinstance(value, str) and value[2:3] == "/":
        return CommonTimes().time_us(value)
    if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
        time = datetime.fromisoformat(value.replace(",", "."))
        return round((time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp() * 1e6)
    number = float(value)
    if not 0 < number < 1e20:  # false for NaN, too
        raise ValueError(f"{value!r} is not a time: {EXAMPLES}")
    if number < _SECONDS:
        return round(number * 1e6)
    if number < _MILLISECONDS:
        return round(number * 1e3)
    return round(number) if number < _MICROSECONDS else round(number / 1e3)
