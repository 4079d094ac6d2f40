"""Clocks that are set back, on each store: nobody is locked out, and nobody gains units."""

from __future__ import annotations

import pytest

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store, settle
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
THREE = TokenBucket(10, burst=3, name="three")
HOURLY = TokenBucket(1, 3600, name="hourly")


async def take(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return (await store.take([Take(charges, max_wait)]))[0]


async def peek(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return await store.peek(Take(charges, max_wait))


async def test_a_clock_set_back_locks_nobody_out(store: Store, clock: SteppedClock) -> None:
    """After a day ahead and back again, an exhausted bucket is full within its refill time."""
    clock.advance(86_400)
    await take(store, Charge(THREE, "key", 3))
    clock.advance(-86_400)
    refused = await take(store, Charge(THREE, "key", 3))
    assert (refused.allowed, refused.retry_after) == (False, 0.3)
    clock.advance(0.3)
    assert (await take(store, Charge(THREE, "key", 3))).allowed


async def test_a_clock_set_back_a_little_gives_nothing(store: Store, clock: SteppedClock) -> None:
    """The level stays as it is until the clock has caught up."""
    await take(store, Charge(THREE, "key", 3))
    clock.advance(-0.5)
    assert (await take(store, Charge(THREE, "key"))).retry_after == 0.6


FIXED = FixedWindow(3, 1, name="fixed")
ROLLING = RollingWindow(3, 1, 10, name="rolling")


@pytest.mark.parametrize("others", [(), (Charge(HOURLY, "other"),)], ids=["alone", "with another"])
@pytest.mark.parametrize(
    ("quota", "back", "retry_after", "after_a_refund"),
    [
        (THREE, 1, 1.1, 0),
        (THREE, 1.000001, 0.1, 0.1),
        (FIXED, 1, 2, 1),
        (FIXED, 1.000001, 0.000001, 0.000001),
        (ROLLING, 1, 2.1, 1),
        (ROLLING, 1.000001, 1.000001, 1.000001),
    ],
)
async def test_a_clock_may_go_back_by_a_period(
    store: Store,
    clock: SteppedClock,
    quota: Quota,
    back: float,
    retry_after: float,
    after_a_refund: float,
    others: tuple[Charge, ...],
) -> None:
    """Up to that, it is waited out; beyond, the bucket counts as made now, and no earlier unit is given back."""
    charges = (Charge(quota, "key"), *others)
    old, _ = [await take(store, Charge(quota, "key", cost)) for cost in (2, 1)]
    clock.advance(-back)
    assert (await take(store, *charges)).retry_after == retry_after
    await settle(store, old, [0.0])
    assert (await peek(store, *charges)).retry_after == after_a_refund


@pytest.mark.parametrize(
    ("quota", "back", "allowed", "then_left"),
    [
        (THREE, 1, True, 1),
        (THREE, 1.000001, True, 3),
        (FIXED, 1, False, 0),
        (FIXED, 1.000001, True, 3),
        (ROLLING, 1, False, 0),
        (ROLLING, 1.000001, True, 1),
    ],
)
async def test_a_take_after_a_clock_went_back(
    store: Store, clock: SteppedClock, quota: Quota, back: float, allowed: bool, then_left: int
) -> None:
    """Where the bucket was rebased, the take is booked as of now, and the level drains from then on."""
    await take(store, Charge(quota, "key"))
    clock.advance(-back)
    assert (await take(store, Charge(quota, "key"))).allowed == allowed
    clock.advance(0.2)
    assert (await peek(store, Charge(quota, "key"))).remaining == then_left


async def test_rebasing_one_bucket_leaves_the_others_alone(store: Store, clock: SteppedClock) -> None:
    """A refusal rebases a state from the future, and does not touch a bucket that was never used."""
    await take(store, Charge(EVEN, "key"))
    clock.advance(-60)
    assert not (await take(store, Charge(EVEN, "key"), Charge(THREE, "key"))).allowed
    clock.advance(-0.5)
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.0
