"""Clocks that are set back, on each store: nobody is locked out, and nobody gains units."""

from __future__ import annotations

import pytest

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
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


@pytest.mark.parametrize("back", [0.5, 1.0, 3_600.0, 86_400.0 * 365])
async def test_a_clock_that_goes_back_grants_nothing_and_locks_nobody_out(
    store: Store, clock: SteppedClock, back: float
) -> None:
    """Time stands still: an exhausted bucket has as long to wait as before, however far the clock went."""
    charges = [Charge(quota, "key", 3) for quota in (THREE, FIXED, ROLLING)]
    for charge in charges:
        await take(store, charge)
    before = [(await take(store, charge)).retry_after for charge in charges]
    clock.advance(-back)
    after = [(await take(store, charge)).retry_after for charge in charges]
    assert all(0 < wait <= 1.2 for wait in after)
    assert after[0] == before[0] == 0.3
    clock.advance(1.2)
    assert [(await take(store, charge)).allowed for charge in charges] == [True] * 3


@pytest.mark.parametrize("back", [0.5, 1.0, 3_600.0])
async def test_what_was_used_before_stays_used(store: Store, clock: SteppedClock, back: float) -> None:
    """By one unit of three, so two are left, and one that is refunded comes back."""
    for quota in (THREE, FIXED, ROLLING):
        decision = await take(store, Charge(quota, "key"))
        await take(store, Charge(quota, "key"))
        clock.advance(-back)
        assert (await peek(store, Charge(quota, "key"))).remaining == 1
        await settle(store, decision, [0.0])
        assert (await peek(store, Charge(quota, "key"))).remaining in (1, 2)


FIXED = FixedWindow(3, 1, name="fixed")
ROLLING = RollingWindow(3, 1, 10, name="rolling")


async def test_rebasing_one_bucket_leaves_the_others_alone(store: Store, clock: SteppedClock) -> None:
    """A refusal rebases a state from the future, and does not touch a bucket that was never used."""
    await take(store, Charge(EVEN, "key"))
    clock.advance(-60)
    assert not (await take(store, Charge(EVEN, "key"), Charge(THREE, "key"))).allowed
    clock.advance(-0.5)
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.0
