"""Slots that are cancelled: who gets them, on each store, for each kind of quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import Quota, TokenBucket
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


def in_reverse(decisions: list[Decision]) -> list[Decision]:
    return decisions[::-1]


@QUEUES
async def test_a_queue_of_which_all_is_cancelled(store: Store, quota: Quota) -> None:
    """All of 200 callers cancel, in any order: the next ones are served as if nobody had come."""
    limiter = Limiter(quota, store=store)
    fresh = await delays(Limiter(quota, name="other", store=store), 30)
    await cancel(limiter, in_reverse([await limiter.pace("key") for _ in range(200)]))
    assert await delays(limiter, 30) == fresh


async def test_a_bucket_whose_queue_is_cancelled_is_empty(store: Store) -> None:
    """It is as good as never used."""
    limiter = Limiter(EVEN, store=store)
    await cancel(limiter, in_reverse([await limiter.pace("key") for _ in range(200)]))
    assert (await limiter.peek("key")).reset_after == 0.0


async def test_a_cancelled_take_frees_every_quota(store: Store) -> None:
    """A slot over several quotas is free in all of them, and a take that fits into all of them gets it."""
    limiter = Limiter([replace(EVEN, name="even"), replace(FIXED, name="fixed")], store=store)
    decisions = [await limiter.pace("key") for _ in range(15)]
    await limiter.cancel(decisions[12])
    assert await delays(limiter, 2) == [decisions[12].delay, pytest.approx(10.5)]
