"""Slots that are cancelled: who gets them, on each store, for each kind of quota."""

from __future__ import annotations

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import Quota
from asgi_ratelimit.stores import Store
from tests.support.giving_back import EVEN, QUEUES, cancel, delays

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
