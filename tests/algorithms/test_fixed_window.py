"""The arithmetic of a fixed window."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.algorithms.fixed_window import book, fresh, give_back, index, most_at_once, outlook, take, wait
from asgi_ratelimit.quotas import FixedWindow
from tests.support.strategies import LIMITS, PERIODS, costs

NOW = 1_800_000_000e6
FIXED = FixedWindow(10, 10, name="window")
WINDOW = index(FIXED, NOW)


def state(window: float, count: float, *gaps: tuple[float, float]) -> State:
    return ((window, count), NOW, 0, gaps, ())


@pytest.mark.parametrize(
    ("before", "cost", "wait_us", "core"),
    [
        (fresh(NOW), 10, 0, (WINDOW, 10)),
        (state(WINDOW, 3), 7, 0, (WINDOW, 10)),
        (state(WINDOW, 3), 8, 10e6, (WINDOW + 1, 8)),
        (state(WINDOW - 1, 10), 1, 0, (WINDOW, 1)),
        (state(WINDOW + 2, 9), 1, 20e6, (WINDOW + 2, 10)),
        (state(WINDOW + 2, 9), 2, 30e6, (WINDOW + 3, 2)),
        (state(WINDOW + 2, 9, (WINDOW + 1, 2.0)), 2, 10e6, (WINDOW + 2, 9)),
        (state(WINDOW + 2, 9, (WINDOW + 1, 1.0)), 2, 30e6, (WINDOW + 3, 2)),
    ],
)
def test_a_take(before: State, cost: float, wait_us: float, core: tuple[float, float]) -> None:
    """It goes into the first window that it fits into, from the last booked one on, or into a gap before that."""
    after, *_ = taken = take(FIXED, before, NOW, cost, math.inf)
    assert taken[1] == wait_us
    assert after is not None
    assert after[0] == core


def test_a_take_in_a_gap_uses_it_up() -> None:
    """What is left of the gap stays, and an empty one goes."""
    before = state(WINDOW + 2, 9, (WINDOW + 1, 2.0))
    assert take(FIXED, before, NOW, 1.5, math.inf)[0] == state(WINDOW + 2, 9, (WINDOW + 1, 0.5))
    assert take(FIXED, before, NOW, 2, math.inf)[0] == state(WINDOW + 2, 9)


@pytest.mark.parametrize(("cost", "max_wait_us", "wait_us"), [(8, 0.0, 10e6), (8, 9e6, 10e6), (11, math.inf, math.inf)])
def test_a_slot_too_far_away_is_not_taken(cost: float, max_wait_us: float, wait_us: float) -> None:
    """The wait says how far, there is no state to write, and the outlook is that of the bucket as it is."""
    before = state(WINDOW, 3)
    assert take(FIXED, before, NOW, cost, max_wait_us) == (None, wait_us, outlook(FIXED, before, NOW))


@given(LIMITS, PERIODS, st.integers(-1, 1), st.floats(0.0, 60.0), costs(60.0), st.integers(0, 3_600_000_000))
@example(10.0, 10.0, 0, 4.0, 7.0, 0)
@example(10.0, 10.0, 0, 10.5, 1.0, 0)
@example(2.5, 10.0, 0, 0.0, 1.0, 0)
@example(10.0, 10.0, -1, 10.0, 1.0, 0)
@settings(max_examples=300)
def test_a_take_is_a_wait_and_a_booking(
    limit: float, period: float, ahead: int, count: float, cost: float, later: int
) -> None:
    """The two building blocks, one after the other, and then the outlook."""
    quota, now = FixedWindow(limit, period), NOW + later
    before = ((index(quota, now) + ahead, count), now, 0, (), ())
    after, wait_us, outlook_after = take(quota, before, now, cost, 0.0)
    assert wait_us == wait(quota, before, now, cost)
    assert after == (book(quota, before, now, cost, 0.0) if wait_us == 0.0 else None)
    assert outlook_after == outlook(quota, after or before, now)
    assert outlook_after[0] == most_at_once(quota, after or before, now)


def test_a_window_that_is_over_leaves_no_gap() -> None:
    """Units that are given back to it, behind a window that is booked ahead, are gone."""
    before = ((105.0, 3.0), 1_010e6, 0, (), ())
    assert give_back(FIXED, before, 1_040e6, 1_000e6, 100.0, 2.0, 2.0)[3] == ()
