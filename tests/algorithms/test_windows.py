"""Fixed and rolling windows, on each store: borders, bookings ahead, and what is given back."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TypeAlias

import pytest

from asgi_ratelimit.algorithms import MAX_PIECES
from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock

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


# Each row: seconds after the start, cost, then the decision.
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
    answers = [(d.allowed, d.remaining, d.retry_after, d.reset_after) for d in decisions]
    assert answers == [row[2:] for row in rows]


@pytest.mark.parametrize(
    ("quota", "more_after"),
    [(FIXED, [0.0, 7.0, 7.0, 7.0]), (ROLLING, [0.0, 11.0, 11.0, 11.0])],
    ids=["fixed", "rolling"],
)
async def test_when_there_is_more(store: Store, clock: SteppedClock, quota: Quota, more_after: list[float]) -> None:
    """Each state says when one more unit than the remaining ones can be taken; 0 means that all remain."""
    clock.advance(3)
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.peek("key"), *[await limiter.rate_limit("key", cost) for cost in (1, 8, 2)]]
    assert [decision.states[0].more_after for decision in decisions] == more_after


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
async def test_a_booked_window_is_full_for_all_others(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """When its time comes, the window belongs to those who booked it: a new caller waits for the next one."""
    limiter = Limiter(quota, store=store)
    booked = [await limiter.pace("key") for _ in range(20)]
    clock.move_to(booked[-1].ready_at)
    refused = await limiter.rate_limit("key")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, booked[-1].delay)


@KINDS
async def test_the_free_rest_of_every_window_is_used(store: Store, quota: Quota) -> None:
    """A small cost goes into the window before a large one, where it fits."""
    limiter = Limiter(quota, store=store)
    delays = [(await limiter.pace("key", cost)).delay for cost in (10, 8, 5, 2, 3, 2, 1)]
    ahead = delays[1]
    assert delays == [0, ahead, 2 * ahead, ahead, 2 * ahead, 2 * ahead, 3 * ahead]


@KINDS
async def test_a_window_that_is_booked_ahead_leaves_the_current_one_free(store: Store, quota: Quota) -> None:
    """What is left of the current window is there for everyone, while somebody waits for the next one."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 4)
    assert (await limiter.pace("key", 7)).delay > 0
    assert (await limiter.peek("key")).remaining == 6
    assert (await limiter.rate_limit("key", 6)).allowed
    assert not (await limiter.rate_limit("key")).allowed


ORDERS = pytest.mark.parametrize("order", [sorted, reversed, lambda numbers: Random(7).sample(list(numbers), 40)])


@KINDS
@ORDERS
async def test_all_is_cancelled(store: Store, quota: Quota, order: Callable[[range], Iterable[int]]) -> None:
    """In any order, at any costs: the bucket is as if never used."""
    limiter = Limiter(quota, store=store)
    booked = [await limiter.pace("key", 0.1 + 0.7 * (number % 13)) for number in range(40)]
    for number in order(range(40)):
        await limiter.cancel(booked[number])
    state = await limiter.peek("key", 10)
    assert (state.allowed, state.remaining, state.reset_after) == (True, 10, 0.0)


@KINDS
@pytest.mark.parametrize("cost", [0.1, 0.7, 1 / 3, 2.6])
async def test_fractional_costs_leave_no_residue(store: Store, quota: Quota, cost: float) -> None:
    """What fits exactly is allowed, and less all of it nothing is left."""
    limiter = Limiter(replace(quota, limit=10 * cost if cost != 1 / 3 else 3), store=store)
    costs = [cost] * 10 if cost != 1 / 3 else [cost] * 9
    booked = [await limiter.rate_limit("key", each) for each in costs]
    assert all(booked)
    assert not (await limiter.rate_limit("key", cost))
    for decision in Random(7).sample(booked, len(booked)):
        await limiter.cancel(decision)
    assert (await limiter.peek("key")).reset_after == 0.0


@KINDS
@pytest.mark.parametrize("cost", [10.5, 11, 2**53])
@pytest.mark.parametrize("max_delay", [0.0, 1e6, None])
async def test_a_cost_above_the_limit_never_passes(
    store: Store, quota: Quota, cost: float, max_delay: float | None
) -> None:
    """Neither when rate limiting nor when pacing, however long the caller waits: no window is large enough."""
    decision = await Limiter(quota, store=store).pace("key", cost, max_delay=max_delay)
    assert (decision.allowed, decision.retry_after, decision.remaining) == (False, math.inf, 10)


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
    """A take that one quota refuses is not charged to the other: a flood on both gets the full rate of each."""
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
    """Each quota is charged at the latest slot of them all: the rolling window's 21 s."""
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


LEAPFROG: list[Quota] = [FixedWindow(1, 10, name="one"), FixedWindow(1, 10, name="other")]


async def test_windows_that_never_suit_each_other_meet_at_their_ends(store: Store) -> None:
    """One quota is free in every even window, the other in every odd one: a take of both goes behind all."""
    limiter = Limiter(LEAPFROG, store=store)
    for name, free in (("one", 0), ("other", 1)):
        booked = [await limiter.pace("key", {name: 1}) for _ in range(20)]
        for decision in booked[free::2]:
            await limiter.cancel(decision)
    assert [(await limiter.peek("key", {name: 1})).retry_after for name in ("one", "other")] == [0.0, 10.0]
    assert (await limiter.pace("key", max_delay=150)).allowed is False
    assert [(await limiter.pace("key")).delay for _ in range(2)] == [200, 210]
    assert [(await limiter.pace("key", {name: 1})).delay for name in ("one", "other")] == [0, 10]


@pytest.mark.parametrize(
    ("quota", "costs"),
    [(FixedWindow(10, 1), [6, 7]), (RollingWindow(1, 1, 1), [1])],
    ids=["fixed", "rolling"],
)
async def test_as_many_windows_as_are_stored_are_booked_ahead(
    store: Store, clock: SteppedClock, quota: Quota, costs: list[float]
) -> None:
    """All of them are cancelled, in any order, and it is as if nobody had booked."""
    limiter = Limiter(quota, store=store)
    booked = [await limiter.pace("key", costs[number % len(costs)]) for number in range(MAX_PIECES)]
    assert booked[-1].delay == (1 if isinstance(quota, FixedWindow) else 2) * (MAX_PIECES - 1)
    for decision in Random(7).sample(booked, len(booked)):
        await limiter.cancel(decision)
    assert (await limiter.peek("key")).reset_after == 0.0


async def test_parts_beyond_the_most_that_are_stored(redis_url: str, clock: SteppedClock) -> None:
    """Both stores count the earliest of them as full, and book no part twice."""
    remote = RedisStore(redis_url, clock=clock, timeout=30)
    quota = RollingWindow(1, 1, 1)
    for store in (MemoryStore(clock=clock), remote):
        limiter = Limiter(quota, store=store)
        booked = [await limiter.pace("key") for _ in range(MAX_PIECES + 5)]
        for decision in (booked[0], booked[2], booked[-1], booked[-3]):
            await limiter.cancel(decision)
        assert [(await limiter.pace("key")).delay for _ in range(3)] == [2 * (MAX_PIECES + n) for n in (2, 4, 5)]
        assert (await limiter.rate_limit("key")).retry_after == 2 * (MAX_PIECES + 6)
    await remote.aclose()


@pytest.mark.parametrize("quota", [FixedWindow(1, 400 * 86_400), RollingWindow(2**53, 400 * 86_400, 60)], ids=repr)
async def test_the_longest_windows(store: Store, quota: Quota) -> None:
    """400 days, and as many units as can be counted."""
    limiter = Limiter(quota, store=store)
    assert (await limiter.rate_limit("key", quota.limit)).remaining == 0
    assert 0 < (await limiter.rate_limit("key", quota.limit)).retry_after <= 2 * 400 * 86_400
