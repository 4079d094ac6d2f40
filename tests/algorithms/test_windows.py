"""Fixed and rolling windows, on each store: what passes at their borders, what is booked ahead, what may change."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import fixed_window, rolling_window
from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.errors import QuotaError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import MAX_PARTS, FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.strategies import LIMITS, PARTS, PERIODS, costs

pytestmark = pytest.mark.anyio

FIXED = FixedWindow(10, 10, name="window")
ROLLING = RollingWindow(10, 10, buckets=10, name="window")  # in parts of a second
KINDS = pytest.mark.parametrize("quota", [FIXED, ROLLING], ids=["fixed", "rolling"])

Verb: TypeAlias = Callable[[float], Awaitable[Decision]]


async def replay(clock: SteppedClock, verb: Verb, calls: Iterable[tuple[float, float]]) -> list[Decision]:
    """The decisions of one verb over calls (seconds after the start, cost); the start is a border of all windows."""
    start, decisions = clock.now, []
    for at, cost in calls:
        clock.move_to(start + at)
        decisions.append(await verb(cost))
    return decisions


def limited(limiter: Limiter) -> Verb:
    return lambda cost: limiter.rate_limit("key", cost)


def paced(limiter: Limiter, max_delay: float | None = None) -> Verb:
    return lambda cost: limiter.pace("key", cost, max_delay=max_delay)


# Each row: seconds after the start, cost, then what is said of it.
Row: TypeAlias = tuple[float, float, bool, int, float, float]

BORDERS: dict[str, tuple[Quota, list[Row]]] = {
    "fixed": (
        FIXED,
        [  # at, cost, allowed, remaining, retry_after, reset_after
            (3, 4, True, 6, 0, 7),
            (3, 7, False, 6, 7, 7),
            (4, 6, True, 0, 0, 6),
            (4, 1, False, 0, 6, 6),
            (9.999999, 1, False, 0, 0.000001, 0.000001),
            (10, 1, True, 9, 0, 10),
            (19.999999, 9, True, 0, 0, 0.000001),
            (20, 10, True, 0, 0, 10),
            (35, 2.5, True, 7, 0, 5),
        ],
    ),
    "rolling": (
        ROLLING,
        [
            (3.5, 4, True, 6, 0, 10.5),
            (3.5, 7, False, 6, 10.5, 10.5),
            (5.25, 6, True, 0, 0, 10.75),
            (6, 1, False, 0, 8, 10),
            (6, 4, False, 0, 8, 10),
            (6, 5, False, 0, 10, 10),
            (13.999999, 4, False, 0, 0.000001, 2.000001),
            (14, 4, True, 0, 0, 11),
            (15.999999, 1, False, 0, 0.000001, 9.000001),
            (16, 2.5, True, 3, 0, 11),
            (27, 10, True, 0, 0, 11),
        ],
    ),
    "one part": (
        RollingWindow(10, 10, buckets=1),
        [
            (3, 10, True, 0, 0, 17),
            (19.999999, 1, False, 0, 0.000001, 0.000001),
            (20, 10, True, 0, 0, 20),
        ],
    ),
}


@pytest.mark.parametrize(("quota", "rows"), BORDERS.values(), ids=BORDERS)
async def test_what_passes_at_borders(store: Store, clock: SteppedClock, quota: Quota, rows: list[Row]) -> None:
    """A fixed window's units are back at its border; a rolling one's when the whole of their part is a period old."""
    decisions = await replay(clock, limited(Limiter(quota, store=store)), [row[:2] for row in rows])
    said = [(d.allowed, d.remaining, d.retry_after, d.reset_after) for d in decisions]
    assert said == [row[2:] for row in rows]


@pytest.mark.parametrize(
    ("quota", "more_after"),
    [(FIXED, [0.0, 7.0, 7.0, 7.0]), (ROLLING, [0.0, 11.0, 11.0, 11.0])],
    ids=["fixed", "rolling"],
)
async def test_when_there_is_more(store: Store, clock: SteppedClock, quota: Quota, more_after: list[float]) -> None:
    """Each state says when one more unit than what is left can be taken: at once when none was."""
    clock.advance(3)
    limiter = Limiter(quota, store=store)
    told = [await limiter.peek("key"), *[await limiter.rate_limit("key", cost) for cost in (1, 8, 2)]]
    assert [decision.states[0].more_after for decision in told] == more_after


@pytest.mark.parametrize(
    ("quota", "after", "delays"),
    [
        (FIXED, 0, [0] * 10 + [10] * 10 + [20] * 5),
        (FIXED, 3, [0] * 10 + [7] * 10 + [17] * 5),
        (FIXED, 9.999999, [0] * 10 + [0.000001] * 10 + [10.000001] * 5),
        (ROLLING, 0, [0] * 10 + [11] * 10 + [22] * 5),
        (ROLLING, 3.25, [0] * 10 + [10.75] * 10 + [21.75] * 5),
    ],
)
async def test_pacing_books_windows_ahead(
    store: Store, clock: SteppedClock, quota: Quota, after: float, delays: list[float]
) -> None:
    """Of 25 callers at once, ten go now, ten at the start of the next window, the rest at that of the one after."""
    decisions = await replay(clock, paced(Limiter(quota, store=store)), [(after, 1)] * 25)
    assert [decision.delay for decision in decisions] == delays


@KINDS
async def test_whoever_was_paced_goes_when_nobody_else_may(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """At the moment that all waited for, the window is theirs: who comes then without a booking waits for the next."""
    limiter = Limiter(quota, store=store)
    booked = [await limiter.pace("key") for _ in range(20)]
    clock.move_to(booked[-1].ready_at)
    refused = await limiter.rate_limit("key")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, booked[-1].delay)


@KINDS
async def test_no_window_is_filled_behind_a_later_booking(store: Store, quota: Quota) -> None:
    """Slots come in order: a small cost goes behind a large one, though the window before it has room."""
    limiter = Limiter(quota, store=store)
    delays = [(await limiter.pace("key", cost)).delay for cost in (10, 8, 5, 2, 3, 1)]
    ahead = delays[1]
    assert delays == [0, ahead, 2 * ahead, 2 * ahead, 2 * ahead, 3 * ahead]


@KINDS
@pytest.mark.parametrize("cost", [10.5, 11, 2**53])
@pytest.mark.parametrize("max_delay", [0.0, 1e6, None])
async def test_a_cost_above_the_limit_never_passes(
    store: Store, quota: Quota, cost: float, max_delay: float | None
) -> None:
    """Neither when rate limiting nor when pacing, however patient the caller: no window has room for it."""
    decision = await Limiter(quota, store=store).pace("key", cost, max_delay=max_delay)
    assert (decision.allowed, decision.retry_after, decision.remaining) == (False, math.inf, 10)


@pytest.mark.parametrize(("at", "passes"), [(99.9, 0), (100, 0), (109.999999, 0), (110, 10)])
async def test_a_rolling_window_counts_a_part_to_its_end(
    store: Store, clock: SteppedClock, at: float, passes: int
) -> None:
    """One unit at 0 s and nine at 9.9 s are in one part: at 100 s nine of them are less than 100 s old."""
    limiter = Limiter(RollingWindow(10, 100, buckets=10), store=store)
    await replay(clock, limited(limiter), [(0, 1), (9.9, 9)])
    clock.advance(at - 9.9)
    assert sum([(await limiter.rate_limit("key")).allowed for _ in range(12)]) == passes


@pytest.mark.parametrize(
    ("quota", "least"),
    [
        (FixedWindow(5, 1), 5 * 60),
        (RollingWindow(5, 1, buckets=10), 5 * 54),  # every 1.1 s
        (TokenBucket(5, burst=1), 5 * 60 - 1),
        (TokenBucket(5), 5 * 60 - 1),
    ],
    ids=["fixed", "rolling", "even", "bucket"],
)
async def test_two_quotas_out_of_phase_admit_their_rate(
    store: Store, clock: SteppedClock, quota: Quota, least: int
) -> None:
    """What is refused by one is not charged to the other: a flood on both gets the rate of each, not a part of it."""
    limiter = Limiter(quota, store=store)
    await limiter.take([Charge(quota, "first", quota.most)])
    clock.advance(0.5)
    await limiter.take([Charge(quota, "second", quota.most)])
    both, admitted = [Charge(quota, "first"), Charge(quota, "second")], 0
    for _ in range(60 * 25):
        clock.advance(0.04)
        admitted += (await limiter.take(both)).allowed
    assert least - 5 <= admitted <= 5 * 60 + 5


@KINDS
@pytest.mark.parametrize("max_wait", [0.0, 1.0])
async def test_a_second_quota_that_refuses_leaves_the_first_unchanged(
    store: Store, quota: Quota, max_wait: float
) -> None:
    """All or nothing, with other kinds of quotas, too."""
    limiter = Limiter([quota, TokenBucket(1, 60, name="slow")], store=store)
    await limiter.rate_limit("key", {"slow": 1})
    refused = await limiter.pace("key", max_delay=max_wait)
    assert (refused.allowed, refused.quota.name) == (False, "slow")
    assert [(state.allowed, state.remaining) for state in refused.states] == [(True, 10), (False, 0)]
    assert (await limiter.peek("key", {"window": 1})).reset_after == 0.0


MANY: list[Quota] = [
    FixedWindow(1, 10, name="fixed"),
    RollingWindow(1, 20, 20, name="rolling"),
    TokenBucket(1, name="a"),
]


async def test_a_paced_take_books_all_charges_at_one_moment(store: Store, clock: SteppedClock) -> None:
    """Each quota is charged at the latest time that any of them asks for: the rolling window's 21 s."""
    limiter = Limiter(MANY, store=store)
    decisions = [await limiter.pace("key") for _ in range(3)]
    assert [decision.delay for decision in decisions] == [0, 21, 42]
    clock.advance(42)
    assert [state.reset_after for state in (await limiter.peek("key")).states] == [8, 21, 1]


async def test_a_paced_take_past_the_longest_wait_books_nothing(store: Store) -> None:
    """Not even those charges whose own slot was near enough."""
    limiter = Limiter(MANY, store=store)
    await limiter.pace("key")
    refused = await limiter.pace("key", max_delay=20)
    assert (refused.allowed, refused.retry_after) == (False, 1)
    assert [(state.allowed, state.retry_after) for state in refused.states] == [(True, 0), (False, 1), (True, 0)]
    assert (await limiter.pace("key", {"fixed": 1, "a": 1})).delay == 10


@pytest.mark.parametrize(
    ("algorithm", "quota", "core"),
    [(fixed_window, FIXED, (105.0, 3.0)), (rolling_window, ROLLING, ((100.0, 2.0), (1051.0, 3.0)))],
    ids=["fixed", "rolling"],
)
def test_what_is_over_leaves_no_gap(algorithm: Any, quota: Quota, core: Any) -> None:
    """A window that has passed, behind one that is booked ahead, is not noted as a place to go to."""
    state = (core, 1_010e6, 0.0, (), ())
    given_back = algorithm.give_back(quota, state, 1_040e6, 1_000e6, 100.0, 2.0, 2.0)
    assert given_back[3] == ()


CHANGES = [
    (FixedWindow(5, 10, name="window"), False, 0),
    (FixedWindow(20, 10, name="window"), True, 13),
    (FixedWindow(10, 20, name="window"), True, 9),
    (RollingWindow(10, 10, 10, name="window"), True, 9),
    (TokenBucket(10, 10, name="window"), True, 9),
]
ROLLING_CHANGES = [
    (RollingWindow(5, 10, 10, name="window"), False, 0),
    (RollingWindow(20, 10, 10, name="window"), True, 13),
    (RollingWindow(10, 20, 10, name="window"), True, 9),
    (FixedWindow(10, 10, name="window"), True, 9),
    (TokenBucket(10, 10, name="window"), True, 9),
]


@given(LIMITS, PERIODS, st.integers(-1, 1), st.floats(0.0, 60.0), costs(60.0), st.integers(0, 3_600_000_000))
@example(10.0, 10.0, 0, 4.0, 7.0, 0)
@example(10.0, 10.0, 0, 10.5, 1.0, 0)
@example(2.5, 10.0, 0, 0.0, 1.0, 0)
@example(10.0, 10.0, -1, 10.0, 1.0, 0)
@settings(max_examples=500)
def test_what_is_taken_at_once_from_a_fixed_window_is_what_is_taken_step_by_step(
    limit: float, period: float, ahead: int, count: float, cost: float, later: int
) -> None:
    """The short way, where it can be gone, tells and leaves the same as the long one, to the bit."""
    quota, now = FixedWindow(limit, period), 1_800_000_000e6 + later
    before = ((fixed_window.index(quota, now) + ahead, count), now, 0.0, (), ())
    short = fixed_window.take_at_once(quota, before, now, cost)
    if short is None:
        return
    left, *told = short
    wait_us = fixed_window.wait(quota, before, now, cost)
    assert (left is None) == (wait_us > 0.0)
    if left is not None:
        assert left == fixed_window.book(quota, before, now, cost, 0.0)
    assert tuple(told) == fixed_window.outlook(quota, left or before, now)
    assert left is not None or told[1] == wait_us


@st.composite
def parts_before(draw: st.DrawFn) -> tuple[RollingWindow, tuple[tuple[float, float], ...], int, float]:
    """A rolling window, the parts of it that were used, the microseconds since a border of it, and a cost."""
    quota = RollingWindow(draw(LIMITS), draw(PERIODS), draw(PARTS))
    now = 1_800_000_000e6 + draw(st.integers(0, round(2 * quota.period_us)))
    current = rolling_window.index(quota, now)
    ages = draw(st.sets(st.integers(-1, quota.buckets + 2), max_size=5))
    counts = st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0.0, quota.limit)
    parts = tuple([(current - age, draw(counts)) for age in sorted(ages, reverse=True)])
    return quota, parts, round(now - 1_800_000_000e6), draw(costs(1.5 * quota.limit))


@given(parts_before())
@example((ROLLING, ((180_000_000.0 * 10, 3.0),), 0, 7.0))
@example((RollingWindow(2.5, 10, 10), (), 0, 1.0))
@settings(max_examples=500)
def test_what_is_taken_at_once_from_a_rolling_window_is_what_is_taken_step_by_step(
    case: tuple[RollingWindow, tuple[tuple[float, float], ...], int, float],
) -> None:
    """The short way, where it can be gone, tells and leaves the same as the long one, to the bit."""
    quota, parts, later, cost = case
    now = 1_800_000_000e6 + later
    before = (parts, now, 0.0, (), ())
    short = rolling_window.take_at_once(quota, before, now, cost)
    if short is None:
        return
    left, *told = short
    assert rolling_window.wait(quota, before, now, cost) == 0.0
    assert left == rolling_window.book(quota, before, now, cost, 0.0)
    assert tuple(told) == rolling_window.outlook(quota, left, now)


@pytest.mark.parametrize("counts", [[], [3.0], [3.0, 0.0, 4.0], [1.0] * 9])
@pytest.mark.parametrize("age", [0, 1])
def test_whole_units_of_a_rolling_window_go_the_short_way(counts: list[float], age: int) -> None:
    """It is there for speed, so that it must be open to what nearly all requests are."""
    now = 1_800_000_000e6
    current = rolling_window.index(ROLLING, now)
    parts = tuple([(current - age - len(counts) + number + 1, count) for number, count in enumerate(counts)])
    assert rolling_window.take_at_once(ROLLING, (parts, now, 0.0, (), ()), now, 1)


@pytest.mark.parametrize("count", [0.0, 3.0, 9.0, 10.0])
@pytest.mark.parametrize("ahead", [-1, 0])
def test_whole_units_of_a_fixed_window_go_the_short_way(count: float, ahead: int) -> None:
    """It is there for speed, so that it must be open to what nearly all requests are."""
    now = 1_800_000_000e6
    before = ((fixed_window.index(FIXED, now) + ahead, count), now, 0.0, (), ())
    assert fixed_window.take_at_once(FIXED, before, now, 1)


@pytest.mark.parametrize(
    ("before", "after", "allowed", "remaining"),
    [(FIXED, *change) for change in CHANGES] + [(ROLLING, *change) for change in ROLLING_CHANGES],
)
async def test_a_quota_that_changes_under_live_keys(
    store: Store, before: Quota, after: Quota, allowed: bool, remaining: int
) -> None:
    """Six units were used: a lower limit denies at once, a higher one frees at once, and another kind starts clean."""
    await Limiter(before, store=store).rate_limit("key", 6)
    decision = await Limiter(after, store=store).rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (allowed, remaining, False)


@pytest.mark.parametrize("buckets", [1, 2, 5, 20, 100])
async def test_a_rolling_window_that_is_cut_otherwise_under_live_keys(store: Store, buckets: int) -> None:
    """The numbers of its parts mean another time then, so that it starts clean, too."""
    await Limiter(ROLLING, store=store).rate_limit("key", 6)
    decision = await Limiter(RollingWindow(10, 10, buckets, name="window"), store=store).rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (True, 9, False)


async def test_a_rolling_window_of_the_most_parts(store: Store, clock: SteppedClock) -> None:
    """A thousand and one of them in use, of which the oldest comes free, and the newest goes back."""
    limiter = Limiter(RollingWindow(1001, 1000, MAX_PARTS), store=store)
    for _ in range(1001):
        newest = await limiter.rate_limit("key")
        clock.advance(1)
    assert (newest.allowed, newest.remaining) == (True, 0)
    assert (await limiter.rate_limit("key", 2)).retry_after == 1
    await limiter.refund(newest)
    assert [(await limiter.rate_limit("key", cost)).remaining for cost in (2, 1)] == [0, 0]


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
def test_parts_that_cannot_be(kind: type[Quota], arguments: tuple[float, ...], problem: str) -> None:
    """They are whole microseconds long; the error says how many would be."""
    with pytest.raises(QuotaError, match=problem):
        kind(*arguments)


@pytest.mark.parametrize("kind", [FixedWindow, RollingWindow])
@pytest.mark.parametrize(
    ("limit", "period", "problem"),
    [
        (0, 10, "limit must be a finite number above 0"),
        (-1, 10, "limit must be a finite number above 0"),
        (math.inf, 10, "limit must be a finite number above 0"),
        (math.nan, 10, "limit must be a finite number above 0"),
        (2**53 + 1, 10, "limit must be a finite number above 0"),
        (0.5, 10, "limit of a window must be at least 1, not 0.5"),
        (10, 0, "period must be seconds from 0.000001 to 400 days, not 0"),
        (10, 400 * 86_400 + 60, "period must be seconds from 0.000001 to 400 days, not 34560060"),
        (10, math.inf, "period must be seconds from 0.000001 to 400 days, not inf"),
        (10, 1 / 3, "period of a window must be whole microseconds"),
    ],
)
def test_windows_that_cannot_be(
    kind: type[FixedWindow | RollingWindow], limit: float, period: float, problem: str
) -> None:
    """The error names the number, and shows a right one."""
    with pytest.raises(QuotaError, match=problem) as raised:
        kind(limit, period)
    assert "Window(1000, 3600" in str(raised.value) or "TokenBucket(100, 60)" in str(raised.value)


@pytest.mark.parametrize("quota", [FixedWindow(1, 400 * 86_400), RollingWindow(2**53, 400 * 86_400, 60)], ids=repr)
async def test_the_longest_windows(store: Store, quota: Quota) -> None:
    """400 days, and as many units as can be counted."""
    limiter = Limiter(quota, store=store)
    assert (await limiter.rate_limit("key", quota.limit)).remaining == 0
    assert 0 < (await limiter.rate_limit("key", quota.limit)).retry_after <= 2 * 400 * 86_400
