"""The arithmetic of a fixed window."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import MAX_PIECES, State
from asgi_ratelimit.algorithms.fixed_window import (
    book,
    booked_ahead,
    debit,
    fresh,
    give_back,
    index,
    most_at_once,
    outlook,
    paid_back,
    rebased,
    reset_us,
    take,
    used,
    wait,
)
from asgi_ratelimit.algorithms.windows.fixed_runs import Run, with_count
from asgi_ratelimit.decision import Charge, SettledCharge
from asgi_ratelimit.quotas import FixedWindow
from tests.support.examples import up_to
from tests.support.strategies import LIMITS, PERIODS, costs

NOW = 1_800_000_000e6
FIXED = FixedWindow(10, 10, name="window")
WINDOW = index(FIXED, NOW)


def state(*runs: Run, debit: float = 0.0) -> State:
    """The state with these runs, in windows counted from the current one."""
    moved = tuple([(WINDOW + start, WINDOW + stop, count) for start, stop, count in runs])
    return ((debit, moved), NOW, 0, (), (), b"")


def settled(window: float, cost: float, actual: float = 0.0) -> SettledCharge:
    """A charge of that window, counted from the current one, that came to less."""
    return SettledCharge(Charge(FIXED, "key", cost), NOW, 0, WINDOW + window, NOW, actual)


@pytest.mark.parametrize(
    ("before", "cost", "wait_us", "after"),
    [
        (fresh(NOW), 10, 0, state((0, 1, 10))),
        (state((0, 1, 3)), 7, 0, state((0, 1, 10))),
        (state((0, 1, 3)), 8, 10e6, state((0, 1, 3), (1, 2, 8))),
        (state((-1, 0, 10)), 1, 0, state((0, 1, 1))),
        (state((0, 2, 10), (2, 3, 9)), 1, 20e6, state((0, 3, 10))),
        (state((0, 2, 10), (2, 3, 9)), 2, 30e6, state((0, 2, 10), (2, 3, 9), (3, 4, 2))),
        (state((0, 1, 10), (1, 2, 8), (2, 3, 9)), 2, 10e6, state((0, 2, 10), (2, 3, 9))),
        (state((0, 5, 8)), 2, 0, state((0, 1, 10), (1, 5, 8))),
        (state((2, 3, 10)), 5, 0, state((0, 1, 5), (2, 3, 10))),
        (state((0, 1, 10), (2, 3, 10)), 10, 10e6, state((0, 3, 10))),
        (state((0, 1, 0.7)), 0.1, 0, state((0, 1, 0.8))),
    ],
)
def test_a_take(before: State, cost: float, wait_us: float, after: State) -> None:
    """It goes into the first window with room; windows that have the same count are one run."""
    assert take(FIXED, before, NOW, cost, math.inf)[:2] == (after, wait_us)


@pytest.mark.parametrize(("cost", "max_wait_us", "wait_us"), [(8, 0.0, 10e6), (8, 9e6, 10e6), (11, math.inf, math.inf)])
def test_a_slot_too_far_away_is_not_taken(cost: float, max_wait_us: float, wait_us: float) -> None:
    """The wait says how far, there is no state to write, and the outlook is that of the bucket as it is."""
    before = state((0, 1, 3))
    assert take(FIXED, before, NOW, cost, max_wait_us) == (None, wait_us, outlook(FIXED, before, NOW))


@given(LIMITS, PERIODS, st.integers(-1, 1), st.floats(0.0, 60.0), costs(60.0), st.integers(0, 3_600_000_000))
@example(10.0, 10.0, 0, 4.0, 7.0, 0)
@example(10.0, 10.0, 0, 10.5, 1.0, 0)
@example(2.5, 10.0, 0, 0.0, 1.0, 0)
@example(10.0, 10.0, -1, 10.0, 1.0, 0)
@up_to(300)
def test_a_take_is_a_wait_and_a_booking(
    limit: float, period: float, ahead: int, count: float, cost: float, later: int
) -> None:
    """The two building blocks, one after the other, and then the outlook."""
    quota, now = FixedWindow(limit, period), NOW + later
    window = index(quota, now) + ahead
    before = ((0.0, ((window, window + 1, count),) if count else ()), now, 0, (), (), b"")
    after, wait_us, outlook_after = take(quota, before, now, cost, 0.0)
    assert wait_us == wait(quota, before, now, cost)
    assert after == (book(quota, before, now, cost, 0.0) if wait_us == 0.0 else None)
    assert outlook_after == outlook(quota, after or before, now)
    assert outlook_after[0] == most_at_once(quota, after or before, now)


@pytest.mark.parametrize(
    ("before", "charge", "after"),
    [
        (state((0, 5, 10)), settled(0, 4), state((0, 1, 6), (1, 5, 10))),
        (state((0, 5, 10)), settled(2, 10), state((0, 2, 10), (3, 5, 10))),
        (state((0, 5, 10)), settled(4, 10), state((0, 4, 10))),
        (state((0, 5, 10)), settled(4, 10, 1), state((0, 4, 10), (4, 5, 1))),
        (state((0, 1, 0.3)), settled(0, 0.1), state((0, 1, 0.2))),
        (state((0, 1, 0.3)), settled(0, 0.3, 0.1), state((0, 1, 0.1))),
        (state((0, 5, 10)), settled(-1, 4), state((0, 5, 10))),
        (state((0, 5, 10)), settled(5, 4), state((0, 5, 10))),
    ],
)
def test_what_is_given_back_is_free_in_its_window(before: State, charge: SettledCharge, after: State) -> None:
    """Any window, to the unit; a window that is over, or that nothing was booked in, has nothing to give back."""
    assert give_back(FIXED, before, NOW, charge) == after


@pytest.mark.parametrize(
    ("before", "units", "place", "after"),
    [
        (state(), 25, 0, state((0, 1, 10), debit=15)),
        (state((0, 1, 4)), 6, 0, state((0, 1, 10))),
        (state((0, 1, 4), (3, 5, 8)), 30, 0, state((0, 1, 10), (3, 5, 8), debit=24)),
        (state((0, 4, 7)), 7, 0, state((0, 1, 10), (1, 4, 7), debit=4)),
        (state((0, 1, 12)), 1, 0, state((0, 1, 12), debit=1)),
        (state((-3, -2, 10)), 1, -3, state((0, 1, 1))),
        (state((-3, -2, 10), debit=4), 1, -3, state((0, 1, 5))),
        (state((0, 1, 9.7)), 0.4, 0, state((0, 1, 10), debit=0.1)),
        (state((0, 1, 10), debit=1), 2, 0, state((0, 1, 10), debit=3)),
        (state((2, 3, 4)), 6, 2, state((2, 3, 10))),
        (state((0, 1, 4), (2, 3, 4)), 9, 2, state((0, 1, 7), (2, 3, 13))),
        (state((0, 1, 4), (2, 3, 13)), 9, 2, state((0, 1, 10), (2, 3, 22), debit=3)),
    ],
)
def test_a_debit_goes_into_the_window_of_its_charge(before: State, units: float, place: float, after: State) -> None:
    """What that has no room for is left over, also where it lies ahead; a window that is over stands for this one."""
    assert debit(FIXED, before, NOW, units, WINDOW + place) == after


@pytest.mark.parametrize(
    ("before", "windows", "after"),
    [
        (state((0, 1, 10), debit=25), 0, state((0, 1, 10), debit=25)),
        (state((0, 1, 10), debit=25), 1, state((1, 2, 10), debit=15)),
        (state((0, 1, 10), debit=25), 2, state((2, 3, 10), debit=5)),
        (state((0, 1, 10), debit=25), 3, state((3, 4, 5))),
        (state((0, 1, 10), debit=25), 4, state()),
        (state((0, 1, 10), (2, 4, 8), debit=11), 1, state((1, 2, 10), (2, 4, 8), debit=1)),
        (state((0, 1, 10), (2, 4, 8), debit=11), 2, state((2, 3, 9), (3, 4, 8))),
        (state((0, 1, 10), (2, 4, 8), debit=14), 3, state((3, 4, 10))),
        (state((0, 1, 10), (2, 4, 8), debit=1e9), 100_000_002, state((100_000_002, 100_000_003, 6))),
        (state((0, 1, 4), debit=5), 0, state((0, 1, 9))),
    ],
)
def test_the_room_to_come_pays_a_debit_back(before: State, windows: float, after: State) -> None:
    """However many windows that takes; nobody goes before, and at the told time one unit fits."""
    now = NOW + windows * FIXED.period_us
    assert paid_back(FIXED, before, now)[0] == after[0]
    wait_us = wait(FIXED, before, NOW, 1.0)
    assert take(FIXED, before, NOW + wait_us, 1.0, 0.0)[0] is not None
    assert wait_us == 0.0 or take(FIXED, before, NOW + wait_us - 1.0, 1.0, 0.0)[0] is None
    assert wait(FIXED, paid_back(FIXED, before, now), max(now, NOW + wait_us), 1.0) == wait(
        FIXED, before, max(now, NOW + wait_us), 1.0
    )


def test_a_huge_debit() -> None:
    """Its windows are not stored, but they are counted."""
    debited = debit(FIXED, fresh(NOW), NOW, 1_000_000_004, -math.inf)
    assert debited == state((0, 1, 10), debit=999_999_994)
    assert wait(FIXED, debited, NOW, 7) == 100_000_001 * 10e6
    assert (used(FIXED, debited, NOW), booked_ahead(FIXED, debited, NOW)) == (1_000_000_004, 999_999_994)
    assert reset_us(FIXED, debited, NOW) == 100_000_001 * 10e6


@pytest.mark.parametrize(
    ("before", "charge", "after"),
    [
        (state((0, 1, 10), debit=5), settled(0, 3), state((0, 1, 10), debit=2)),
        (state((0, 1, 10), debit=5), settled(0, 8), state((0, 1, 7))),
        (state((0, 1, 10), debit=25), settled(0, 35, 6), state((0, 1, 6))),
        (state((0, 2, 10), debit=5), settled(1, 3), state((0, 1, 10), (1, 2, 7), debit=5)),
        (state((0, 1, 10), debit=5), settled(-1, 3), state((0, 1, 10), debit=5)),
    ],
)
def test_what_is_given_back_pays_a_debit_back(before: State, charge: SettledCharge, after: State) -> None:
    """As if the actual costs had been charged; also those of a charge that was debited as a whole."""
    assert give_back(FIXED, before, NOW, charge) == after


def test_too_many_runs_are_joined_where_least_is_lost() -> None:
    """With the higher count of both, so that no window ever gets more than its limit."""
    runs = tuple([(WINDOW + at, WINDOW + at + 1, 9.0 if at % 2 else 2.0) for at in range(MAX_PIECES)])
    after = with_count(runs, WINDOW + 500, 8.0, WINDOW)
    assert len(after) == MAX_PIECES
    after = with_count(
        (*runs[:-1], (WINDOW + MAX_PIECES - 1, WINDOW + MAX_PIECES + 5, 9.0)), WINDOW + MAX_PIECES + 1, 8.0, WINDOW
    )
    assert len(after) <= MAX_PIECES
    assert after[-1] == (WINDOW + MAX_PIECES - 1, WINDOW + MAX_PIECES + 5, 9.0)


def test_what_would_be_one_run_too_many_is_not_given_back() -> None:
    """Or else two of them would become one, in which a window that is not concerned would count more."""
    runs = tuple([(2.0 * at, 2.0 * at + 2.0, 9.0 if at % 2 else 2.0) for at in range(MAX_PIECES)])
    assert give_back(FIXED, state(*runs), NOW, settled(7, 1.0)) == state(*runs)
    fewer = state(*runs[: MAX_PIECES - 1])
    assert len(give_back(FIXED, fewer, NOW, settled(7, 1.0))[0][1]) == MAX_PIECES


def test_a_clock_that_falls_back_takes_its_windows_along() -> None:
    """What was booked counts from the same distance."""
    before = state((0, 1, 10), (3, 4, 5), debit=3)
    moved = rebased(FIXED, before, NOW - 3600e6, 7)
    assert moved == (
        (3, tuple([(start - 360, stop - 360, count) for start, stop, count in before[0][1]])),
        NOW - 3600e6,
        7,
        (),
        (),
        b"",
    )


def test_a_clock_that_falls_back_a_little_gives_nothing() -> None:
    """Nothing is taken before the window of the latest change."""
    before, earlier = state((0, 1, 4)), NOW - 1
    assert most_at_once(FIXED, before, earlier) == 0.0
    assert wait(FIXED, before, earlier, 6) == 1.0
    assert wait(FIXED, before, earlier, 7) == 10e6 + 1
