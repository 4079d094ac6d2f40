"""Windows whose quota changes under way, on each store: other limits, periods, parts and kinds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.other_process import OtherProcess

pytestmark = pytest.mark.anyio

FIXED = FixedWindow(10, 10, name="window")
ROLLING = RollingWindow(10, 10, buckets=10, name="window")  # in parts of a second
KINDS = pytest.mark.parametrize("quota", [FIXED, ROLLING], ids=["fixed", "rolling"])


@pytest.mark.parametrize("quota", [FixedWindow(1, 60, name="window"), RollingWindow(1, 60, name="window")], ids=repr)
async def test_a_raised_limit_frees_windows_that_are_booked_ahead(store: Store, quota: Quota) -> None:
    """Ten callers have booked ten minutes at 1 a minute; at 100 a minute, 99 units of each are free at once."""
    old, new = [Limiter(each, store=OtherProcess(store)) for each in (quota, replace(quota, limit=100))]
    booked = [await old.pace("key") for _ in range(10)]
    assert booked[-1].delay >= 540
    assert (await new.rate_limit("key", 99)).allowed
    assert (await new.pace("key", 99)).delay == booked[1].delay
    assert (await old.pace("key")).delay > booked[-1].delay


@KINDS
async def test_a_lowered_limit_is_full_until_its_window_is_over(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """Nobody waits longer than for what was used before."""
    await Limiter(quota, store=store).rate_limit("key", 10)
    limiter = Limiter(replace(quota, limit=4), store=store)
    refused = await limiter.rate_limit("key")
    assert refused.retry_after == (10 if isinstance(quota, FixedWindow) else 11)
    clock.advance(refused.retry_after)
    assert [(await limiter.rate_limit("key")).allowed for _ in range(5)] == [True] * 4 + [False]


@KINDS
async def test_two_versions_side_by_side_count_what_both_admit(store: Store, quota: Quota) -> None:
    """The lower limit is used up first; the higher one has room for the rest of its own."""
    limiters = [Limiter(replace(quota, limit=limit), store=OtherProcess(store)) for limit in (4, 10)]
    admitted = [[(await limiter.rate_limit("key")).allowed for limiter in limiters] for _ in range(20)]
    assert [sum(each) for each in zip(*admitted)] == [2, 8]


@KINDS
async def test_slots_of_one_version_stay_booked_while_the_other_one_takes(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """When their windows come, both versions count them, and what the other one has taken in those windows."""
    old, new = [Limiter(replace(quota, limit=limit), store=OtherProcess(store)) for limit in (4, 10)]
    for _ in range(12):
        await old.pace("key")
    assert (await new.rate_limit("key", 6)).allowed
    clock.advance(11 if isinstance(quota, RollingWindow) else 10)
    assert (await new.rate_limit("key", 3)).allowed
    assert not (await old.rate_limit("key")).allowed
    booked = await old.pace("key")
    assert booked.delay >= 19
    clock.advance(booked.delay)
    assert (await old.rate_limit("key", 2)).allowed
    assert [(await limiter.peek("key")).remaining for limiter in (old, new)] == [1, 7]


@KINDS
async def test_what_one_version_gives_back_is_free_under_the_other(store: Store, quota: Quota) -> None:
    """Whichever of them has taken last."""
    old, new = [Limiter(replace(quota, limit=limit), store=OtherProcess(store)) for limit in (4, 10)]
    taken = [await limiter.rate_limit("key") for limiter in (old, new, old, new)]
    assert [(await limiter.peek("key")).remaining for limiter in (old, new)] == [0, 6]
    for limiter, decision in zip((old, new, old, new), taken):
        await limiter.refund(decision)
    assert [(await limiter.peek("key")).remaining for limiter in (old, new)] == [4, 10]


SEPARATE: list[Quota] = [
    FIXED,
    ROLLING,
    RollingWindow(10, 10, buckets=5, name="window"),
    FixedWindow(10, 20, name="window"),
    TokenBucket(10, 10, name="window"),
]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(SEPARATE, 2)))
async def test_two_versions_of_different_kinds_never_wipe_each_other(store: Store, one: Quota, other: Quota) -> None:
    """Each keeps its own count: together they admit no more than both quotas."""
    limiters = [Limiter(quota, store=OtherProcess(store)) for quota in (one, other)]
    admitted = [[(await limiter.rate_limit("key")).allowed for limiter in limiters] for _ in range(50)]
    assert [sum(each) for each in zip(*admitted)] == [10, 10]


async def test_a_reset_forgets_one_version(store: Store) -> None:
    """The other one goes on."""
    limiters = [Limiter(quota, store=OtherProcess(store)) for quota in (FIXED, ROLLING)]
    for limiter in limiters:
        await limiter.rate_limit("key", 10)
    await limiters[0].reset("key")
    assert [(await limiter.rate_limit("key")).allowed for limiter in limiters] == [True, False]


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
