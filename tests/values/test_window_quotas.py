"""Fixed and rolling windows as values: which numbers they take."""

from __future__ import annotations

import math

import pytest

from asgi_ratelimit.errors import QuotaError
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow


@pytest.mark.parametrize(
    ("kind", "arguments", "problem"),
    [
        (RollingWindow, (10, 10, 7), "7 buckets do not divide a period of 10000000 microseconds.* 5 do"),
        (RollingWindow, (10, 1e-6, 2), "2 buckets do not divide a period of 1 microseconds.* 1 do"),
        (RollingWindow, (10, 10, 0), "buckets must be a whole number from 1 to 1000, not 0"),
        (RollingWindow, (10, 10, 1001), "not 1001"),
        (RollingWindow, (10, 10, 2.5), r"not 2\.5"),
        (RollingWindow, (10, 10, True), "not True"),
    ],
)
def test_invalid_parts(kind: type[Quota], arguments: tuple[float, ...], problem: str) -> None:
    """Parts are whole microseconds long; the error says which number of parts would do."""
    with pytest.raises(QuotaError, match=problem):
        kind(*arguments)


@pytest.mark.parametrize("kind", [FixedWindow, RollingWindow])
@pytest.mark.parametrize(
    ("limit", "period", "problem"),
    [
        (0, 10, "limit must be at least 1 and at most"),
        (-1, 10, "limit must be at least 1 and at most"),
        (math.inf, 10, "limit must be at least 1 and at most"),
        (math.nan, 10, "limit must be at least 1 and at most"),
        (2**53 + 1, 10, "limit must be at least 1 and at most"),
        (0.5, 10, "limit must be at least 1 and at most .*, not 0.5"),
        (10, 0, "period must be seconds from 0.000001 to 400 days, not 0"),
        (10, 400 * 86_400 + 60, "period must be seconds from 0.000001 to 400 days, not 34560060"),
        (10, math.inf, "period must be seconds from 0.000001 to 400 days, not inf"),
    ],
)
def test_invalid_windows(kind: type[FixedWindow | RollingWindow], limit: float, period: float, problem: str) -> None:
    """The error names the number, and shows a right one."""
    with pytest.raises(QuotaError, match=problem) as raised:
        kind(limit, period)
    assert f": {kind.__name__}(1000, 3600" in str(raised.value)


@pytest.mark.parametrize("period", [16_985_629.226564, 34_559_999.999999, 0.000001, 1e-3, 400 * 86_400])
def test_any_period_of_whole_microseconds_is_taken(period: float) -> None:
    """However long it is, though a double holds its microseconds only nearly."""
    assert FixedWindow(1, period).period_us == round(period * 1e6)
