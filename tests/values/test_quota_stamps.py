"""The stamps of token buckets: which numbers they tell, and how exactly."""

from __future__ import annotations

import math
import struct
import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import pack, unpack
from asgi_ratelimit.errors import QuotaError
from asgi_ratelimit.quota_stamps import burst_code, least_burst, numbers_in
from asgi_ratelimit.quotas import MAX_PERIOD, MAX_UNITS, TokenBucket, whole_us

LIMITS = st.floats(1e-16, MAX_UNITS) | st.integers(1, 2**53)
PERIODS = st.floats(1e-6, MAX_PERIOD) | st.sampled_from([1e-6, 64_999.0, 65_001.0, 65_400.0, MAX_PERIOD])
BURSTS = st.none() | st.floats(1, MAX_UNITS) | st.integers(1, 1000)


@given(LIMITS, PERIODS, BURSTS)
@example(2.0**53, 65_400.0, 2.0**53)
@example(1.0, 1.0, 62.75)
def test_a_stamp_is_a_usual_number(limit: float, period: float, burst: float | None) -> None:
    """So stamps are equal as doubles if they are equal as bytes."""
    try:
        quota = TokenBucket(limit, period, burst)
    except QuotaError:
        assume(False)
    (number,) = struct.unpack("<d", quota.stamp)
    assert sys.float_info.min <= abs(number) < math.inf
    assert struct.pack("<d", number) == quota.stamp
    period_us, about, code = numbers_in(quota.stamp)
    assert quota.period_us <= period_us <= quota.period_us * (1 + 2e-4)
    assert about == pytest.approx(limit, rel=2**-17)
    assert 0.98 * quota.burst < least_burst(code, about) <= quota.burst * 1.01


@pytest.mark.parametrize(
    "period", [1e-6, 0.001, 0.25, 0.1, 1 / 64, 1, 1.5, 7, 60, 86.4, 900, 3599, 3600, 5400, 86_400, 604_800, 2_592_000]
)
@pytest.mark.parametrize("limit", [0.25, 1, 10, 99_999, 10**6])
def test_usual_numbers_are_exact(limit: float, period: float) -> None:
    """Periods of up to four digits, and limits and bursts of up to five."""
    quota = TokenBucket(limit, period)
    period_us, about, code = numbers_in(quota.stamp)
    assert (period_us, about, least_burst(code, about)) == (whole_us(period), limit, quota.burst)


@pytest.mark.parametrize("other", [(11, 60, 10), (10, 61, 10), (10, 60, 11), (10.001, 60, 10), (10, 60.01, 10)])
def test_other_numbers_have_another_stamp(other: tuple[float, float, float]) -> None:
    """That of a version of its own."""
    assert TokenBucket(*other).stamp != TokenBucket(10, 60).stamp


DAYS = st.floats(1e-6, 10 * 86_400)


@given(st.integers(1, 6000), DAYS, DAYS)
def test_whole_units_stay_whole_under_another_period(units: int, before: float, after: float) -> None:
    """None appears and none disappears, however many digits the periods have, if a stamp tells the periods apart."""
    old, new = TokenBucket(10_000, before), TokenBucket(10_000, after)
    assume(before == after or numbers_in(old.stamp)[0] != numbers_in(new.stamp)[0])
    state = unpack(new, pack(old, (units * old.period_us, 1e15, 1, (), (), b"")))
    assert state is not None
    assert math.floor((new.burst_level - state[0]) / new.period_us) == 10_000 - units


@pytest.mark.parametrize("burst", [1, 2, 17, 75])
def test_small_bursts_are_exact(burst: float) -> None:
    """Beside any limit."""
    assert least_burst(burst_code(burst), 1234.5) == burst
