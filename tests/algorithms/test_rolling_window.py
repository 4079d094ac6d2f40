"""The rolling window: its arithmetic, and what only it does on each store."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.algorithms.rolling_window import (
    book,
    counted,
    fresh,
    give_back,
    index,
    most_at_once,
    outlook,
    take,
    wait,
)
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import MAX_PARTS, RollingWindow
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.strategies import LIMITS, PARTS, PERIODS, costs

NOW = 1_800_000_000e6
ROLLING = RollingWindow(10, 10, buckets=10, name="window")  # in parts of a second
PART = index(ROLLING, NOW)


def state(*parts: tuple[float, float], gaps: tuple[tuple[float, float], ...] = ()) -> State:
    return (parts, NOW, 0, gaps, ())


@pytest.mark.parametrize(
    ("before", "cost", "wait_us", "parts"),
    [
        (fresh(NOW), 10, 0, [(PART, 10)]),
        (state((PART, 3)), 7, 0, [(PART, 10)]),
        (state((PART, 3)), 8, 11e6, [(PART + 11, 8)]),
        (state((PART - 10, 10)), 1, 1e6, [(PART - 9, 0), (PART + 1, 1)]),
        (state((PART - 11, 10)), 1, 0, [(PART, 1)]),
        (state((PART + 2, 9)), 1, 2e6, [(PART + 2, 10)]),
        (state((PART + 22, 9), gaps=((PART + 11, 2.0),)), 2, 11e6, [(PART + 22, 9)]),
    ],
)
def test_a_take(before: State, cost: float, wait_us: float, parts: list[tuple[float, float]]) -> None:
    """It goes into the first part in which it fits, from the last booked one on, or into a gap before that."""
    after, *_ = taken = take(ROLLING, before, NOW, cost, math.inf)
    assert taken[1] == wait_us
    assert after is not None
    assert list(after[0]) == [part for part in parts if part[1]]


@pytest.mark.parametrize(
    ("cost", "max_wait_us", "wait_us"), [(8, 0.0, 11e6), (8, 10e6, 11e6), (11, math.inf, math.inf)]
)
def test_a_slot_too_far_away_is_not_taken(cost: float, max_wait_us: float, wait_us: float) -> None:
    """The wait says how far, there is no state to write, and the outlook is that of the bucket as it is."""
    before = state((PART, 3))
    assert take(ROLLING, before, NOW, cost, max_wait_us) == (None, wait_us, outlook(ROLLING, before, NOW))


@st.composite
def parts_before(draw: st.DrawFn) -> tuple[RollingWindow, tuple[tuple[float, float], ...], int, float]:
    """A rolling window, its used parts, the microseconds since one of its borders, and a cost."""
    quota = RollingWindow(draw(LIMITS), draw(PERIODS), draw(PARTS))
    now = 1_800_000_000e6 + draw(st.integers(0, round(2 * quota.period_us)))
    current = index(quota, now)
    ages = draw(st.sets(st.integers(-1, quota.buckets + 2), max_size=5))
    counts = st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0.0, quota.limit)
    parts = tuple([(current - age, draw(counts)) for age in sorted(ages, reverse=True)])
    return quota, parts, round(now - 1_800_000_000e6), draw(costs(1.5 * quota.limit))


@given(parts_before())
@example((ROLLING, ((180_000_000.0 * 10, 3.0),), 0, 7.0))
@example((RollingWindow(2.5, 10, 10), (), 0, 1.0))
@settings(max_examples=300)
def test_a_take_is_a_wait_and_a_booking(
    case: tuple[RollingWindow, tuple[tuple[float, float], ...], int, float],
) -> None:
    """The two building blocks, one after the other, and then the outlook."""
    quota, parts, later, cost = case
    now = NOW + later
    before = (parts, now, 0, (), ())
    after, wait_us, outlook_after = take(quota, before, now, cost, 0.0)
    assert wait_us == wait(quota, before, now, cost)
    assert after == (book(quota, before, now, cost, 0.0) if wait_us == 0.0 else None)
    assert outlook_after == outlook(quota, after or before, now)
    assert outlook_after[0] == most_at_once(quota, after or before, now)
    if after is not None:
        current = index(quota, now)
        assert counted(quota, after, current) == pytest.approx(counted(quota, before, current) + cost)


def test_a_part_that_is_over_leaves_no_gap() -> None:
    """Units that are given back to it, behind a part that is booked ahead, are gone."""
    before = (((100.0, 2.0), (1051.0, 3.0)), 1_010e6, 0, (), ())
    assert give_back(ROLLING, before, 1_040e6, 1_000e6, 100.0, 2.0, 2.0)[3] == ()


@pytest.mark.anyio
@pytest.mark.parametrize(("at", "passes"), [(99.9, 0), (100, 0), (109.999999, 0), (110, 10)])
async def test_a_rolling_window_counts_a_part_to_its_end(
    store: Store, clock: SteppedClock, at: float, passes: int
) -> None:
    """One unit at 0 s and nine at 9.9 s are in one part: at 100 s nine of them are less than 100 s old."""
    limiter = Limiter(RollingWindow(10, 100, buckets=10), store=store)
    await limiter.rate_limit("key")
    clock.advance(9.9)
    await limiter.rate_limit("key", 9)
    clock.advance(at - 9.9)
    assert sum([(await limiter.rate_limit("key")).allowed for _ in range(12)]) == passes


@pytest.mark.anyio
@pytest.mark.parametrize("buckets", [1, 2, 5, 20, 100])
async def test_a_rolling_window_with_other_parts_under_live_keys(store: Store, buckets: int) -> None:
    """The numbers of its parts mean other times then, so it starts clean."""
    await Limiter(ROLLING, store=store).rate_limit("key", 6)
    decision = await Limiter(RollingWindow(10, 10, buckets, name="window"), store=store).rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (True, 9, False)


@pytest.mark.anyio
async def test_a_rolling_window_of_the_most_parts(store: Store, clock: SteppedClock) -> None:
    """With 1,001 parts in use, the oldest comes free, and the newest is given back."""
    limiter = Limiter(RollingWindow(1001, 1000, MAX_PARTS), store=store)
    for _ in range(1001):
        newest = await limiter.rate_limit("key")
        clock.advance(1)
    assert (newest.allowed, newest.remaining) == (True, 0)
    assert (await limiter.rate_limit("key", 2)).retry_after == 1
    await limiter.refund(newest)
    assert [(await limiter.rate_limit("key", cost)).remaining for cost in (2, 1)] == [0, 0]
