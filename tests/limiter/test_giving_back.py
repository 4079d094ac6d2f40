"""Giving back through a limiter, in memory and on Redis: cases that random histories found."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import Limiter, Take
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio


async def test_units_that_have_drained_do_not_come_back_by_coincidence(store: Store, clock: SteppedClock) -> None:
    """A new charge that leads to the level where an older one ended does not make that one the newest."""
    limiter = Limiter("1/s burst 4", store=store)
    one, other = await limiter.rate_limit("k", 2), await limiter.rate_limit("k", 2)
    clock.advance(2)
    await limiter.settle(one, 0)
    assert await limiter.rate_limit("k", 2)
    await limiter.settle(other, 0)
    assert (await limiter.peek("k")).remaining == 2


async def test_a_charge_beside_a_debit_comes_back(store: Store) -> None:
    """In the same microsecond, and although the debit is above the burst."""
    limiter = Limiter("1/s burst 4", store=store)
    one, other = await limiter.rate_limit("k", 3), await limiter.rate_limit("k", 1)
    await limiter.settle(other, 3)
    await limiter.settle(one, 0)
    assert (await limiter.peek("k")).remaining == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_cost_above_the_burst_comes_back(store: Store, clock: SteppedClock, order: tuple[int, int]) -> None:
    """Cancelled with the one behind it, in either order, it leaves nothing behind."""
    limiter = Limiter("1/s burst 1", store=store)
    booked = [await limiter.pace("k", 2)]
    clock.advance(1)
    booked.append(await limiter.pace("k"))
    for number in order:
        await limiter.cancel(booked[number])
    assert (await limiter.peek("k")).reset_after == 0.0


async def test_an_older_charge_comes_back_where_nothing_is_recorded(store: Store, clock: SteppedClock) -> None:
    """But for what may have drained before the newest one: as for requests that a limit further in refuses."""
    limiter = Limiter("60/minute", store=store)
    take = Take(limiter.charges("k", 10))
    (first,) = await limiter.store.take([take])
    clock.advance(2)
    await limiter.store.take([take])
    await limiter.refund(first)
    assert (await limiter.peek("k")).remaining == 50


@pytest.mark.parametrize("wrong", [None, 3, True], ids=repr)
@pytest.mark.parametrize("method", ["settle", "refund", "cancel"])
async def test_only_decisions_are_given_back(store: Store, method: str, wrong: Any) -> None:
    """The error quotes the value, and shows a right call."""
    arguments = (wrong, 1) if method == "settle" else (wrong,)
    with pytest.raises(ValueError, match=rf"not {wrong!r}: {method}\("):
        await getattr(Limiter("1/s burst 4", store=store), method)(*arguments)
