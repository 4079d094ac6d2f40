"""Slots that are cancelled: who gets them, on each store, for each kind of quota."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from asgi_ratelimit.algorithms.state import PIECES_OF_TAKE

from asgi_ratelimit.algorithms import MAX_PIECES
from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import MAX_CHARGES, Quota, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.giving_back import BUCKET, EVEN, FIXED, QUEUES, ROLLING, SLOW, cancel, delays

pytestmark = pytest.mark.anyio


@QUEUES
@pytest.mark.parametrize("booked", [2, 11, 15])
async def test_the_newest_slot_moves_the_end_of_the_queue_back(store: Store, quota: Quota, booked: int) -> None:
    """The next caller gets the very same slot, again and again."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(booked)]
    for _ in range(20):
        await limiter.cancel(decisions.pop())
        decisions.append(await limiter.pace("key"))
    fresh = await delays(Limiter(quota, name="other", store=store), booked + 5)
    assert [decision.delay for decision in decisions] + await delays(limiter, 5) == fresh


@pytest.mark.parametrize(
    ("quota", "used", "cost"),
    [
        (BUCKET, 8, 3),
        (BUCKET, 10, 5),
        (SLOW, 9, 3),
        (SLOW, 11, 5),
        (FIXED, 10, 5),
        (FIXED, 8, 5),
        (ROLLING, 10, 5),
        (ROLLING, 8, 5),
    ],
)
async def test_cancelling_leaves_the_queue_as_it_was(store: Store, quota: Quota, used: float, cost: float) -> None:
    """Callers who book and cancel, one after another, do not delay the others, whatever cost they booked."""
    limiter, other = Limiter(quota, store=store), Limiter(quota, store=store, name="other")
    for each in (limiter, other):
        await each.rate_limit("key", used)
    for _ in range(20):
        await limiter.cancel(await limiter.pace("key", cost))
    assert await delays(limiter, 5) == await delays(other, 5)


@QUEUES
@pytest.mark.parametrize("number", [1, 12, 17])
async def test_an_older_slot_is_free_for_the_next_caller(store: Store, quota: Quota, number: int) -> None:
    """After that slot is booked again, the queue continues at its end."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(20)]
    await limiter.cancel(decisions[number])
    expected = (await delays(Limiter(quota, name="other", store=store), 22))[20:]
    assert await delays(limiter, 3) == [decisions[number].delay, *expected]


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0])
async def test_a_queue_whose_callers_come_and_go_does_not_grow(
    store: Store, clock: SteppedClock, factor: float
) -> None:
    """Five wait at any time; every 50 ms the three in the middle leave, and others come and take their slots."""
    limiter = Limiter(TokenBucket(60, 1, burst=3, burst_allowance_factor=factor), store=store)
    booked = [await limiter.pace("key") for _ in range(8)]
    for _ in range(100):
        booked = [decision for decision in booked if decision.ready_at > clock.now]
        while len(booked) < 5:
            booked.append(await limiter.pace("key"))
            assert booked[-1].delay <= 5.01 / 60
        await cancel(limiter, booked[1:4])
        del booked[1:4]
        clock.advance(0.05)
    assert (await limiter.waiting("key"), await limiter.eta("key")) == (0.0, 0.0)


@QUEUES
async def test_a_slot_that_is_over_is_not_free(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """A slot whose time has passed when it is cancelled is not booked again."""
    limiter, other = Limiter(quota, store=store), Limiter(quota, store=store, name="other")
    decisions = [await limiter.pace("key") for _ in range(40)]
    await delays(other, 40)
    clock.advance(decisions[25].delay)
    await cancel(limiter, [decisions[5]])
    assert await delays(limiter, 3) == await delays(other, 3)


@QUEUES
async def test_a_free_slot_is_not_given_to_a_cost_that_does_not_fit(store: Store, quota: Quota) -> None:
    """Half a unit fits into the slot of one unit, twice; two units go to the end."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(20)]
    await limiter.cancel(decisions[3])
    larger = (await limiter.pace("key", 2)).delay if quota.most >= 2 else math.inf
    halves = [(await limiter.pace("key", 0.5)).delay for _ in range(3)]
    assert larger > decisions[19].delay
    assert decisions[3].delay - 0.05 <= halves[0] <= halves[1] <= decisions[4].delay
    assert halves[2] > decisions[18].delay


def in_order(decisions: list[Decision]) -> list[Decision]:
    return decisions


def in_reverse(decisions: list[Decision]) -> list[Decision]:
    return decisions[::-1]


def at_random(decisions: list[Decision]) -> list[Decision]:
    return random.Random(7).sample(decisions, len(decisions))


@QUEUES
@pytest.mark.parametrize("order", [in_order, in_reverse, at_random])
async def test_a_queue_of_which_all_is_cancelled(
    store: Store, quota: Quota, order: Callable[[list[Decision]], list[Decision]]
) -> None:
    """All of 200 callers cancel, in any order: the next ones are served as if nobody had come."""
    limiter = Limiter(quota, store=store)
    fresh = await delays(Limiter(quota, name="other", store=store), 30)
    await cancel(limiter, order([await limiter.pace("key") for _ in range(200)]))
    assert await delays(limiter, 30) == fresh


async def test_a_bucket_whose_queue_is_cancelled_is_empty(store: Store) -> None:
    """It is as good as never used."""
    limiter = Limiter(EVEN, store=store)
    await cancel(limiter, at_random([await limiter.pace("key") for _ in range(200)]))
    assert (await limiter.peek("key")).reset_after == 0.0


@QUEUES
async def test_every_other_slot_of_a_queue_is_cancelled(store: Store, quota: Quota) -> None:
    """The next fifty callers get exactly the fifty slots that came free, and the one after them goes to the end."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(100)]
    freed = decisions[1::2]
    await cancel(limiter, at_random(freed))
    assert await delays(limiter, 50) == sorted(decision.delay for decision in freed)
    assert await delays(limiter, 1) == (await delays(Limiter(quota, name="other", store=store), 101))[100:]


async def test_the_first_of_too_many_gaps_are_stored(store: Store) -> None:
    """Beyond ``MAX_PIECES``, no gap is added, so that a state stays small; none that was free is booked again."""
    limiter = Limiter(EVEN, store=store)
    decisions = [await limiter.pace("key") for _ in range(2 * MAX_PIECES + 101)]
    cancelled = at_random(decisions[1:-1:2])
    await cancel(limiter, cancelled)
    got = await delays(limiter, MAX_PIECES + 1)
    assert got[:MAX_PIECES] == sorted(decision.delay for decision in cancelled[:MAX_PIECES])
    assert got[MAX_PIECES] == pytest.approx(len(decisions) / 10)


async def test_a_take_of_many_buckets_keeps_the_first_gaps_of_each(store: Store) -> None:
    """Those that it leaves out are not free any more, and none that was not free is booked."""
    limiter, most = Limiter(EVEN, store=store), PIECES_OF_TAKE // MAX_CHARGES
    decisions = [await limiter.pace("key") for _ in range(101)]
    freed = [decision.delay for decision in decisions[1:-1:2]]
    await cancel(limiter, at_random(decisions[1:-1:2]))
    others = [Charge(EVEN, f"other {number}") for number in range(MAX_CHARGES - 1)]
    refused = await limiter.take([Charge(EVEN, "key"), *others])
    assert (refused.allowed, refused.retry_after) == (False, freed[0])
    taken = await limiter.take([Charge(EVEN, "key"), *others], math.inf)
    assert [taken.delay, *await delays(limiter, most - 1)] == freed[:most]
    assert await delays(limiter, 1) == [pytest.approx(len(decisions) / 10)]


async def test_a_cancelled_take_frees_every_quota(store: Store) -> None:
    """A slot over several quotas is free in all of them, and a take that fits into all of them gets it."""
    limiter = Limiter([replace(EVEN, name="even"), replace(FIXED, name="fixed")], store=store)
    decisions = [await limiter.pace("key") for _ in range(15)]
    await limiter.cancel(decisions[12])
    assert await delays(limiter, 2) == [decisions[12].delay, pytest.approx(10.5)]


async def test_a_gap_that_is_over_when_another_quota_has_units(store: Store) -> None:
    """The gap at 0.5 s does not suit a take that another quota delays by 10 s: both book at the later end."""
    even, fixed = replace(EVEN, name="even"), replace(FIXED, name="fixed")
    limiter = Limiter([even, fixed], store=store)
    await limiter.rate_limit("key", {"fixed": 10})
    decisions = [await limiter.pace("key", {"even": 1}) for _ in range(151)]
    await limiter.cancel(decisions[5])
    assert [(await limiter.peek("key", {name: 1})).retry_after for name in ("even", "fixed")] == [0.5, 10.0]
    assert await delays(limiter, 2) == [pytest.approx(15.1), pytest.approx(15.2)]
    assert (await limiter.pace("key", {"even": 1})).delay == 0.5
