"""Giving back through a limiter, in memory and on Redis: cases that random histories found."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from asgi_ratelimit import Limiter
from asgi_ratelimit.stores import Store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("wrong", [None, 3, True], ids=repr)
@pytest.mark.parametrize("method", ["settle", "refund", "cancel"])
async def test_only_decisions_are_given_back(store: Store, method: str, wrong: Any) -> None:
    """The error quotes the value, and shows a right call."""
    arguments = (wrong, 1) if method == "settle" else (wrong,)
    with pytest.raises(ValueError, match=rf"not {wrong!r}: {method}\("):
        await getattr(Limiter("1/s burst 4", store=store), method)(*arguments)


@pytest.mark.parametrize("burst", [1, 3])
async def test_slots_that_are_no_whole_microseconds_apart_all_come_back(store: Store, burst: int) -> None:
    """The newest first, although each slot is rounded up to a microsecond."""
    limiter = Limiter(f"7/s burst {burst}", store=store)
    booked = [await limiter.pace("key") for _ in range(20)]
    for decision in reversed(booked):
        await limiter.cancel(decision)
    assert (await limiter.peek("key")).remaining == burst


@pytest.mark.parametrize("quota", ["100/day", "100/day fixed", "100/day rolling"])
@pytest.mark.parametrize("actual", [2, 3, 4])
async def test_no_copy_is_settled_again(store: Store, quota: str, actual: float) -> None:
    """Also where the cost was as charged, so that nothing was given back or debited."""
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 3)
    copy = pickle.loads(pickle.dumps(decision))
    await limiter.settle(decision, actual)
    await limiter.refund(copy)
    assert (await limiter.peek("key")).remaining == 100 - actual


@pytest.mark.parametrize("actual", [2, 3, 4])
async def test_no_repeated_block_is_settled_again(store: Store, actual: float) -> None:
    """The second of two that do the same finds that the work is done, and has needed nothing."""
    limiter = Limiter("100/day fixed", store=store)
    for units in (actual, 0):
        async with limiter.spend("key", 3, operation="message") as spent:
            spent.settle(units)
    assert (await limiter.peek("key")).remaining == 100 - actual
