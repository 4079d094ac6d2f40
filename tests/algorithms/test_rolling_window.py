"""The rolling window: its arithmetic, and what only it does on each store."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.algorithms.rolling_window import (
    MAX_PIECES,
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
from asgi_ratelimit.algorithms.windows.rolling_parts import highest
from asgi_ratelimit.decision import Charge, SettledCharge
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import MAX_PARTS, RollingWindow
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to
from tests.support.strategies import LIMITS, PARTS, PERIODS, costs

NOW = 1_800_000_000e6
ROLLING = RollingWindow(10, 10, buckets=10, name="window")  # in parts of a second
PART = index(ROLLING, NOW)


def state(*parts: tuple[float, float], full_until: float | None = None, debit: float = 0.0) -> State:
    """The state with these parts, counted from the current one."""
    until = 0.0 if full_until is None else PART + full_until
    return ((until, debit, tuple([(PART + part, count) for part, count in parts])), NOW, 0, (), (), b"")


def settled(part: float, cost: float, actual: float = 0.0) -> SettledCharge:
    """A charge of that part, counted from the current one, that came to less."""
    return SettledCharge(Charge(ROLLING, "key", cost), NOW, 0, PART + part, NOW, actual)


@pytest.mark.parametrize(
    ("before", "cost", "wait_us", "after"),
    [
        (fresh(NOW), 10, 0, state((0, 10))),
        (state((0, 3)), 7, 0, state((0, 10))),
        (state((0, 3)), 8, 11e6, state((0, 3), (11, 8))),
        (state((-10, 10)), 1, 1e6, state((-10, 10), (1, 1))),
        (state((-11, 10)), 1, 0, state((0, 1))),
        (state((-10, 4), (-5, 6)), 4, 1e6, state((-10, 4), (-5, 6), (1, 4))),
        (state((-10, 4), (-5, 6)), 5, 6e6, state((-10, 4), (-5, 6), (6, 5))),
        (state((2, 9)), 1, 0, state((0, 1), (2, 9))),
        (state((2, 9)), 2, 13e6, state((2, 9), (13, 2))),
        (state((11, 9)), 2, 0, state((0, 2), (11, 9))),
        (state((0, 10), (22, 9)), 2, 11e6, state((0, 10), (11, 2), (22, 9))),
        (state((0, 10), (11, 7), (22, 9)), 2, 11e6, state((0, 10), (11, 9), (22, 9))),
        (state((-2, 3), (11, 3)), 7, 0, state((-2, 3), (0, 7), (11, 3))),
        (state((-2, 3), (8, 3)), 7, 9e6, state((-2, 3), (8, 3), (9, 7))),
        (state((0, 0.7)), 0.1, 0, state((0, 0.8))),
        (state((7, 1), full_until=5), 1, 5e6, state((5, 1), (7, 1), full_until=5)),
    ],
)
def test_a_take(before: State, cost: float, wait_us: float, after: State) -> None:
    """It goes into the first part that leaves no window with more than the limit, behind it or ahead."""
    assert take(ROLLING, before, NOW, cost, math.inf)[:2] == (after, wait_us)


@pytest.mark.parametrize(
    ("cost", "max_wait_us", "wait_us"), [(8, 0.0, 11e6), (8, 10e6, 11e6), (11, math.inf, math.inf)]
)
def test_a_slot_too_far_away_is_not_taken(cost: float, max_wait_us: float, wait_us: float) -> None:
    """The wait says how far, there is no state to write, and the outlook is that of the bucket as it is."""
    before = state((0, 3))
    assert take(ROLLING, before, NOW, cost, max_wait_us) == (None, wait_us, outlook(ROLLING, before, NOW))


@st.composite
def parts_before(draw: st.DrawFn) -> tuple[RollingWindow, tuple[tuple[float, float], ...], int, float]:
    """A rolling window, its used parts, the microseconds since one of its borders, and a cost."""
    quota = RollingWindow(draw(LIMITS), draw(PERIODS), draw(PARTS))
    now = 1_800_000_000e6 + draw(st.integers(0, round(2 * quota.period_us)))
    current = index(quota, now)
    ages = draw(st.sets(st.integers(-1, quota.buckets + 2), max_size=5))
    counts = st.sampled_from([1.0, 2.0]) | st.floats(0.1, quota.limit)
    parts = tuple([(current - age, draw(counts)) for age in sorted(ages, reverse=True)])
    return quota, parts, round(now - 1_800_000_000e6), draw(costs(1.5 * quota.limit))


@given(parts_before())
@example((ROLLING, ((180_000_000.0 * 10, 3.0),), 0, 7.0))
@example((RollingWindow(2.5, 10, 10), (), 0, 1.0))
@up_to(300)
def test_a_take_is_a_wait_and_a_booking(
    case: tuple[RollingWindow, tuple[tuple[float, float], ...], int, float],
) -> None:
    """The two building blocks, one after the other, and then the outlook."""
    quota, parts, later, cost = case
    now = NOW + later
    before = ((0.0, 0.0, parts), now, 0, (), (), b"")
    after, wait_us, outlook_after = take(quota, before, now, cost, 0.0)
    assert wait_us == wait(quota, before, now, cost)
    assert after == (book(quota, before, now, cost, 0.0) if wait_us == 0.0 else None)
    assert outlook_after == outlook(quota, after or before, now)
    assert outlook_after[0] == most_at_once(quota, after or before, now)
    if after is not None:
        current = index(quota, now)
        after_parts, units = after[0][2], highest(quota, parts, current) + cost
        assert highest(quota, after_parts, current) == pytest.approx(units, abs=1e-5)


@pytest.mark.parametrize(
    ("before", "charge", "after"),
    [
        (state((0, 10), (11, 10), (22, 10)), settled(11, 4), state((0, 10), (11, 6), (22, 10))),
        (state((0, 10), (11, 10), (22, 10)), settled(11, 10), state((0, 10), (22, 10))),
        (state((0, 10), (11, 10), (22, 10)), settled(22, 10), state((0, 10), (11, 10))),
        (state((-10, 3), (0, 7)), settled(-10, 3, 1), state((-10, 1), (0, 7))),
        (state((0, 0.3)), settled(0, 0.1), state((0, 0.2))),
        (state((0, 0.3)), settled(0, 0.3, 0.1), state((0, 0.1))),
        (state((0, 7)), settled(-11, 3), state((0, 7))),
    ],
)
def test_what_is_given_back_is_free_in_its_part(before: State, charge: SettledCharge, after: State) -> None:
    """Any part that still counts, to the unit."""
    assert give_back(ROLLING, before, NOW, charge) == after


@pytest.mark.parametrize(
    ("before", "units", "place", "after"),
    [
        (state(), 10, 0, state((0, 10))),
        (state((0, 4)), 6, 0, state((0, 10))),
        (state((0, 4)), 8, 0, state((0, 10), debit=2)),
        (state((-10, 4), (0, 6)), 2, 0, state((-10, 4), (0, 6), debit=2)),
        (state((-10, 4)), 2, -10, state((-10, 6))),
        (state((-10, 4)), 8, -10, state((-10, 10), debit=2)),
        (state((-10, 4), (-3, 1)), 8, -5, state((-10, 4), (-5, 5), (-3, 1), debit=3)),
        (state((-10, 4)), 8, -11, state((-10, 4), (0, 6), debit=2)),
        (state((0, 10)), 25, 0, state((0, 10), debit=25)),
        (state((2, 9)), 3, 0, state((0, 1), (2, 9), debit=2)),
        (state((2, 4)), 3, 2, state((2, 7))),
        (state((0, 4), (2, 4)), 9, 2, state((0, 4), (2, 13), debit=7)),
        (state((0, 4), (12, 4)), 9, 12, state((0, 7), (12, 13))),
    ],
)
def test_a_debit_goes_into_the_part_of_its_charge(before: State, units: float, place: float, after: State) -> None:
    """What has no room is left over, also where that lies ahead; a part that no longer counts stands for this one."""
    assert debit(ROLLING, before, NOW, units, PART + place) == after


@pytest.mark.parametrize(
    ("before", "parts", "after"),
    [
        (state((0, 10), debit=25), 10, state((0, 10), debit=25)),
        (state((0, 10), debit=25), 11, state((11, 10), debit=15)),
        (state((0, 10), debit=25), 32, state((22, 10), debit=5)),
        (state((0, 10), debit=25), 33, state((33, 5))),
        (state((0, 10), debit=25), 50, state()),
        (state((-10, 4), (0, 6), debit=2), 0, state((-10, 4), (0, 6), debit=2)),
        (state((-10, 4), (0, 6), debit=2), 1, state((0, 6), (1, 2))),
        (state((-10, 4), (0, 6), debit=5), 1, state((0, 6), (1, 4), debit=1)),
        (state((-10, 4), (0, 6), debit=5), 11, state((1, 4), (11, 1))),
        (state((-10, 4), (0, 6), debit=25), 23, state((22, 6), (23, 4), debit=1)),
        (state((-10, 6), (0, 6), debit=5), 1, state((0, 6), (1, 4), debit=1)),
        (state((0, 10), (40, 9), debit=25), 22, state((22, 10), (40, 9), debit=5)),
        (state((0, 10), (40, 9), debit=35), 43, state((33, 1), (40, 9), debit=14)),
        (state((0, 10), (40, 9), debit=35), 44, state((40, 9), (44, 1), debit=13)),
        (state((0, 10), (40, 9), debit=35), 51, state((44, 1), (51, 9), debit=4)),
        (state((0, 10), (40, 9), debit=35), 62, state((55, 1), (62, 3))),
        (state((0, 10), debit=1_000_000_003), 1_100_000_010, state((1_100_000_000, 10), debit=3)),
        (state((0, 4), debit=3), 0, state((0, 7))),
    ],
)
def test_the_room_to_come_pays_a_debit_back(before: State, parts: float, after: State) -> None:
    """However many windows that takes; nobody goes before, and at the told time one unit fits."""
    now = NOW + parts * ROLLING.part_us
    assert paid_back(ROLLING, before, now)[0] == after[0]
    wait_us = wait(ROLLING, before, NOW, 1.0)
    assert take(ROLLING, before, NOW + wait_us, 1.0, 0.0)[0] is not None
    assert wait_us == 0.0 or take(ROLLING, before, NOW + wait_us - 1.0, 1.0, 0.0)[0] is None
    assert used(ROLLING, before, NOW) == sum(count for _, count in before[0][2]) + before[0][1]


def test_a_huge_debit_counts_as_full_windows() -> None:
    """Its parts are not stored, but they are counted."""
    debited = debit(ROLLING, fresh(NOW), NOW, 10_000_004, -math.inf)
    assert debited == state((0, 10), debit=9_999_994)
    assert wait(ROLLING, debited, NOW, 1) == 11_000_000e6
    assert (used(ROLLING, debited, NOW), booked_ahead(ROLLING, debited, NOW)) == (10_000_004, 9_999_994)
    assert reset_us(ROLLING, debited, NOW) == 11_000_011e6


@pytest.mark.parametrize(
    ("before", "charge", "after"),
    [
        (state((0, 10), debit=5), settled(0, 3), state((0, 10), debit=2)),
        (state((0, 10), debit=5), settled(0, 8), state((0, 7))),
        (state((0, 10), debit=25), settled(0, 35, 6), state((0, 6))),
        (state((-5, 4), (0, 6), debit=5), settled(-5, 3), state((-5, 1), (0, 9), debit=2)),
        (state((0, 10), (11, 10), debit=5), settled(11, 3), state((0, 10), (11, 7), debit=5)),
        (state((0, 10), debit=5), settled(-11, 3), state((0, 10), debit=5)),
    ],
)
def test_what_is_given_back_pays_a_debit_back(before: State, charge: SettledCharge, after: State) -> None:
    """As if the actual costs had been charged; also those of a charge that was debited as a whole."""
    assert give_back(ROLLING, before, NOW, charge) == after


def test_too_many_parts_ahead_count_as_full() -> None:
    """All parts up to some part: those that may have room are the latest ones."""
    quota = RollingWindow(1, 1, 1, name="window")
    now = index(quota, NOW)
    before: State = (
        (0.0, 0.0, tuple([(now + 2 * number, 1.0) for number in range(MAX_PIECES + 1)])),
        NOW,
        0,
        (),
        (),
        b"",
    )
    for number in range(3):
        after, wait_us, _ = take(quota, before, NOW, 1, math.inf)
        assert after is not None
        assert wait_us == (MAX_PIECES + 1 + number) * 2e6
        before = after
    full_until, _, parts = before[0]
    assert len(parts) == MAX_PIECES + 1
    assert full_until == now + 2 * 3
    assert most_at_once(quota, before, NOW) == 0.0
    assert booked_ahead(quota, before, NOW) == MAX_PIECES + 3
    later = NOW + 2e6 * (MAX_PIECES + 4)
    assert take(quota, before, later, 1, 0.0)[0] is not None


def test_a_clock_that_falls_back_takes_its_parts_along() -> None:
    """What was booked counts from the same distance."""
    moved = rebased(ROLLING, state((0, 10), (33, 5), full_until=33, debit=3), NOW - 3600e6, 7)
    assert moved[0] == (PART - 3600 + 33, 3, ((PART - 3600, 10), (PART - 3600 + 33, 5)))
    assert moved[1:3] == (NOW - 3600e6, 7)


def test_a_clock_that_falls_back_a_little_gives_nothing() -> None:
    """Nothing is taken before the part of the latest change."""
    before, earlier = state((0, 4)), NOW - 1
    assert most_at_once(ROLLING, before, earlier) == 0.0
    assert wait(ROLLING, before, earlier, 6) == 1.0
    assert wait(ROLLING, before, earlier, 7) == 11e6 + 1


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
