"""The arithmetic of a token bucket, step by step."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.algorithms.token_bucket import fresh, most_at_once, outlook, rebased, reset_us, take
from asgi_ratelimit.algorithms.token_bucket_level import drain_time, drained, scaled_cost
from asgi_ratelimit.quotas import TokenBucket
from tests.support.examples import up_to
from tests.support.strategies import costs, token_buckets

NOW = 1_800_000_000_000_000.0
SECOND, DAY = 1e6, 86_400e6
UNIT = 1e6  # the level of one unit, for a period of a second

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
FULL = TokenBucket(10, burst=11, name="full")  # the same rate, and 11 at once
SLOW = TokenBucket(10, burst=11, burst_allowance_factor=0.5, name="slow")  # a burst of 10 is earned back in 2 s


def state(level: float, last: float = NOW) -> State:
    return (level, last, 0, (), (), b"")


def wait(quota: TokenBucket, before: State, now: float, cost: float) -> float:
    """The wait of a caller who waits however long it takes."""
    return take(quota, before, now, cost, math.inf)[1]


def book(quota: TokenBucket, before: State, now: float, cost: float, wait_us: float) -> State | None:
    """The state after a take at ``now + wait_us`` or later."""
    return take(quota, before, now, cost, math.inf, wait_us)[0]


@pytest.mark.parametrize(
    ("quota", "level", "elapsed", "rest"),
    [
        (FULL, 0, SECOND, 0),
        (FULL, 11 * UNIT, 0, 11 * UNIT),
        (FULL, 11 * UNIT, -5, 11 * UNIT),
        (FULL, 11 * UNIT, 1, 11 * UNIT - 10),
        (FULL, 11 * UNIT, SECOND, UNIT),
        (FULL, 11 * UNIT, 5 * SECOND, 0),
        (SLOW, 11 * UNIT, 0.05 * SECOND, 10.5 * UNIT),
        (SLOW, 11 * UNIT, 0.1 * SECOND, 10 * UNIT),
        (SLOW, 11 * UNIT, 0.3 * SECOND, 9 * UNIT),
        (SLOW, 10 * UNIT, SECOND, 5 * UNIT),
        (SLOW, 10 * UNIT, 2 * SECOND, 0),
        (SLOW, 10 * UNIT, DAY, 0),
        (SLOW, 20 * UNIT, SECOND, 10 * UNIT),
    ],
)
def test_a_level_drains(quota: TokenBucket, level: float, elapsed: float, rest: float) -> None:
    """Below the burst floor it drains slowly, above it at the full rate, and a clock set back drains nothing."""
    assert drained(quota, level, elapsed) == rest


@pytest.mark.parametrize(
    ("quota", "level", "target", "time"),
    [
        (FULL, 0, 0, 0),
        (FULL, 5, 6, 0),
        (FULL, 11 * UNIT, 10 * UNIT, 100_000),
        (FULL, 11 * UNIT, 11 * UNIT - 1, 1),
        (FULL, 11 * UNIT, 11 * UNIT - 11, 2),
        (SLOW, 11 * UNIT, 10 * UNIT, 100_000),
        (SLOW, 11 * UNIT, 9 * UNIT, 300_000),
        (SLOW, 10 * UNIT, 0, 2_000_000),
        (SLOW, 11 * UNIT, 0, 2_100_000),
    ],
)
def test_the_time_to_drain_is_rounded_up(quota: TokenBucket, level: float, target: float, time: float) -> None:
    """Whole microseconds, never a part of one too early."""
    assert drain_time(quota, level, target) == time


@pytest.mark.parametrize(
    ("quota", "used", "cost", "wait_us"),
    [
        (EVEN, (0, NOW), 1, 0),
        (EVEN, (UNIT, NOW), 1, 100_000),
        (EVEN, (UNIT, NOW - 40_000), 1, 60_000),
        (EVEN, (UNIT, NOW - 99_999), 1, 1),
        (EVEN, (UNIT, NOW - 100_000), 1, 0),
        (EVEN, (UNIT, NOW - 40_000), 0.5, 10_000),
        (EVEN, (3 * UNIT, NOW), 1, 300_000),
        (EVEN, (UNIT, NOW + 5_000), 1, 105_000),
        (FULL, (11 * UNIT, NOW), 11, 1_100_000),
        (FULL, (8 * UNIT, NOW), 3, 0),
        (FULL, (8 * UNIT, NOW), 4, 100_000),
        (SLOW, (11 * UNIT, NOW), 1, 100_000),
        (SLOW, (11 * UNIT, NOW), 11, 2_100_000),
        (EVEN, (UNIT, NOW), 100, 100_000),
        (FULL, (5 * UNIT, NOW), 12, 500_000),
    ],
)
def test_the_wait_for_a_cost(quota: TokenBucket, used: tuple[float, float], cost: float, wait_us: float) -> None:
    """Until the cost fits; above the burst, until the bucket is empty."""
    assert wait(quota, state(*used), NOW, cost) == wait_us


@pytest.mark.parametrize(
    ("quota", "used", "cost", "wait_us", "booked"),
    [
        (EVEN, (0, NOW), 1, 0, (UNIT, NOW)),
        (EVEN, (UNIT, NOW), 1, 100_000, (2 * UNIT, NOW)),
        (FULL, (5 * UNIT, NOW - 100_000), 1, 0, (5 * UNIT, NOW)),
        (FULL, (5 * UNIT, NOW), 1, 200_000, (6 * UNIT, NOW)),  # 3 are left at the slot, 1 is taken, 2 drain until then
        (FULL, (5 * UNIT, NOW + 5_000), 1, 0, (6 * UNIT, NOW + 5_000)),
        (SLOW, (9 * UNIT, NOW), 1, 200_000, (11 * UNIT, NOW)),  # 8 are left, 1 is taken, 2 drain at the full rate
        (EVEN, (0, NOW), 50, 0, (50 * UNIT, NOW)),
    ],
)
def test_booking_a_cost(
    quota: TokenBucket, used: tuple[float, float], cost: float, wait_us: float, booked: tuple[float, float]
) -> None:
    """The bucket is held so full that it drains to the right level at the moment of the slot."""
    after = book(quota, state(*used), NOW, cost, wait_us)
    assert after is not None
    assert after[:2] == booked


@pytest.mark.parametrize(
    ("used", "max_wait_us", "wait_us"),
    [(UNIT, 0.0, 100_000), (UNIT, 99_999.0, 100_000), (3 * UNIT, 100_000.0, 300_000)],
)
def test_a_slot_too_far_away_is_not_taken(used: float, max_wait_us: float, wait_us: float) -> None:
    """The wait says how far, there is no state to write, and the outlook is that of the bucket as it is."""
    assert take(EVEN, state(used), NOW, 1, max_wait_us) == (None, wait_us, outlook(EVEN, state(used), NOW))


def test_a_cost_above_the_burst_never_conforms_without_a_wait() -> None:
    """A caller who waits for a microsecond may have it, from an empty bucket."""
    assert take(EVEN, state(0), NOW, 2, 0.0)[:2] == (None, math.inf)
    assert take(EVEN, state(0), NOW, 2, 1.0)[:2] == (state(2 * UNIT), 0.0)


def test_a_wait_over_a_century_is_never() -> None:
    """Beyond 142 years, microseconds are no longer exact."""
    assert take(EVEN, state(2.0**52 * 10 + 2 * UNIT), NOW, 1, math.inf)[:2] == (None, math.inf)


def test_a_bucket_that_was_never_used_is_empty() -> None:
    """It is as if it had been changed just now."""
    assert fresh(NOW)[:2] == (0.0, NOW)
    assert wait(FULL, fresh(NOW), NOW, 11) == reset_us(FULL, fresh(NOW), NOW) == 0.0


def test_a_state_from_the_future_is_rebased() -> None:
    """Its level stays, and drains from now on."""
    assert rebased(FULL, state(3 * UNIT, NOW + DAY), NOW)[:2] == (3 * UNIT, NOW)


@pytest.mark.parametrize(
    ("quota", "used", "units", "more_us", "reset"),
    [
        (FULL, (0, NOW), 11, 0, 0),
        (FULL, (UNIT, NOW), 10, 100_000, 100_000),
        (FULL, (1.5 * UNIT, NOW), 9, 50_000, 150_000),
        (FULL, (11 * UNIT, NOW), 0, 100_000, 1_100_000),
        (FULL, (14 * UNIT, NOW), 0, 400_000, 1_400_000),
        (FULL, (11 * UNIT, NOW - DAY), 11, 0, 0),
        (FULL, (UNIT, NOW + 7), 10, 100_007, 100_007),
        (SLOW, (11 * UNIT, NOW), 0, 100_000, 2_100_000),
        (TokenBucket(10, burst=2.5), (0, NOW), 2, 0, 0),
        (TokenBucket(10, burst=2.5), (2.5 * UNIT, NOW), 0, 100_000, 250_000),
    ],
)
def test_the_outlook(quota: TokenBucket, used: tuple[float, float], units: int, more_us: float, reset: float) -> None:
    """Whole units left, the time until there is one more, and the time until the bucket is as good as new."""
    assert outlook(quota, state(*used), NOW) == (units, more_us, reset)
    assert most_at_once(quota, state(*used), NOW) == units
    assert units + 1 > quota.burst or wait(quota, state(*used), NOW, units + 1) == more_us
    assert reset_us(quota, state(*used), NOW) == reset


def test_a_small_step_back_gives_no_units() -> None:
    """What a full bucket waits for grows by the step, and ``last`` stays where it was."""
    assert wait(EVEN, state(UNIT), NOW - 300_000, 1) == 400_000
    assert book(EVEN, state(0), NOW - 300_000, 1, 0) == state(UNIT)


@st.composite
def bookings(draw: st.DrawFn) -> tuple[TokenBucket, float, int, float]:
    """A bucket, the level that it was left at, the microseconds since then, and a cost."""
    quota = draw(token_buckets("quota"))
    level = draw(
        st.sampled_from([0.0, quota.burst_level, quota.period_us, 2 * quota.period_us])
        | st.floats(0.0, quota.burst_level)
    )
    unit = round(quota.period_us / quota.limit)
    elapsed = draw(st.sampled_from([0, 1, unit, 2 * unit]) | st.integers(0, round(2 * quota.burst_level / quota.limit)))
    return quota, level, elapsed, draw(costs(1.5 * quota.burst))


FORTY_NINTH = TokenBucket(1 / 49, burst=10)  # in 49 s not quite all of a unit drains, as doubles have it


EXAMPLES = [
    (FORTY_NINTH, UNIT, 49_000_000, 10.0),
    (FORTY_NINTH, UNIT, 49_000_000, 9.0),
    (TokenBucket(1 / 49, burst=1), UNIT, 49_000_000, 1.0),
    (TokenBucket(1 / 49, burst=1), UNIT, 48_999_999, 1.0),
    (EVEN, UNIT, 7, 1.0),
    (FULL, FULL.burst_level, 7, 2.0),
    (TokenBucket(1.0, burst=2.00001, burst_allowance_factor=0.5), 2.0 * UNIT, 0, 1e-6),
]


def with_examples(test: Any) -> Any:
    for case in EXAMPLES:
        test = example(case)(test)
    return test


@given(bookings())
@with_examples
@up_to(500)
def test_a_take_in_numbers(case: tuple[TokenBucket, float, int, float]) -> None:
    """Its wait is the least after which the cost conforms at the drained level, and not a microsecond longer."""
    quota, level, elapsed, cost = case
    scaled = scaled_cost(quota, cost)
    before, target = state(level, NOW - elapsed), max(quota.burst_level - scaled, 0.0)
    after, wait_us, outlook_after = take(quota, before, NOW, cost, math.inf)
    assert drained(quota, level, elapsed + wait_us) <= target
    assert wait_us == 0.0 or drained(quota, level, elapsed + wait_us - 1) > target
    at_slot = drained(quota, level, elapsed + wait_us) + scaled
    assert after == state(at_slot + wait_us * quota.limit if wait_us else at_slot)
    assert outlook_after == outlook(quota, after, NOW)


@given(bookings())
@with_examples
@up_to(500)
def test_a_gap_that_fits_nothing_changes_nothing(case: tuple[TokenBucket, float, int, float]) -> None:
    """A bucket with a gap too small for any cost gives the same verdict, wait and level as one without."""
    quota, level, elapsed, cost = case
    core, last, generation, *_ = state(level, NOW - elapsed)
    with_gap = (core, last, generation, ((level, 1e-9),), (), b"")
    for max_wait_us in (0.0, math.inf):
        plain, other = (take(quota, before, NOW, cost, max_wait_us) for before in (state(level, last), with_gap))
        assert other[1:] == plain[1:]
        assert (other[0] and other[0][:3]) == (plain[0] and plain[0][:3])


@given(bookings())
@example((FORTY_NINTH, UNIT, 49_000_000, 1.0))
@up_to(500)
def test_the_outlook_is_exact(case: tuple[TokenBucket, float, int, float]) -> None:
    """The units that remain conform now; one unit more conforms at its time, and not a microsecond sooner."""
    quota, level, elapsed, _ = case
    before = state(level, NOW - elapsed)
    units, more_us, _ = outlook(quota, before, NOW)
    assert units == 0 or wait(quota, before, NOW, units) == 0.0
    assert wait(quota, before, NOW, units + 1) == more_us if units + 1 <= quota.burst else more_us == 0.0
