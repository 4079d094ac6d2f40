"""Refunds, cancellations and settlements: on each store, for each kind of quota."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from asgi_ratelimit import Charge, Limiter, Quota, RedisStore, Take
from asgi_ratelimit.stores import Store, settle
from asgi_ratelimit.testing import SteppedClock
from tests.support.giving_back import BUCKET, FIXED, KINDS, QUEUES, ROLLING, SLOW, delays, remaining_units

pytestmark = pytest.mark.anyio


@KINDS
@pytest.mark.parametrize(("given", "remaining"), [(None, 10), (6, 10), (2, 6), (0.5, 4), (0, 4)])
async def test_a_refund(store: Store, quota: Quota, given: float | None, remaining: int) -> None:
    """Some or all of the 6 units are available again."""
    limiter = Limiter(quota, store=store)
    await limiter.refund(await limiter.rate_limit("key", 6), given)
    assert await remaining_units(limiter) == remaining
    assert (await limiter.rate_limit("key", remaining)).allowed
    assert not (await limiter.rate_limit("key")).allowed


# The actual costs of two charges of 4; ``None`` leaves a charge as it is.
STEPS: list[list[float | None]] = [[3, None], [None, 3], [0, 0], [4, 4], [None, 4], [9, 2]]


@KINDS
async def test_each_charge_is_settled_once_by_whoever_comes_first(store: Store, quota: Quota) -> None:
    """Holders of copies settle all charges or one of them, in any order."""
    quotas = [replace(quota, name="a"), replace(quota, name="b")]
    for number, steps in enumerate(permutations(STEPS, 3)):
        charges = [Charge(each, f"key {number}", 4, "name") for each in quotas]
        await store.take([Take(tuple([replace(charge, cost=1) for charge in charges]))])
        (decision,) = await store.take([Take(tuple(charges))])
        for actual in steps:
            await settle(store, pickle.loads(pickle.dumps(decision)), actual)
        first = [next((each[at] for each in steps if each[at] is not None), 4) for at in range(2)]
        left = [state.remaining for state in (await store.peek(Take(tuple(charges)))).states]
        assert left == [max(9 - (cost or 0), 0) for cost in first], steps


async def test_one_number_for_different_costs_is_no_actual_cost(store: Store) -> None:
    """The error shows how to say whose it is, and nothing is settled; nothing at all is clear."""
    limiter = Limiter([replace(FIXED, name="calls"), replace(FIXED, name="tokens")], store=store)
    decision = await limiter.rate_limit("key", {"calls": 1, "tokens": 6})
    with pytest.raises(ValueError, match=r"which quota is 4\? They were charged .*: settle\(\{'tokens': 4\}\)"):
        await limiter.settle(decision, 4)
    await limiter.settle(decision, {"tokens": 4})
    assert [each.remaining for each in (await limiter.peek("key")).states] == [9, 6]
    await limiter.settle(decision, {"calls": 0})  # which was not named before
    await limiter.settle(decision, {"calls": 1, "tokens": 6})  # both were
    assert [each.remaining for each in (await limiter.peek("key")).states] == [10, 6]
    await limiter.settle(await limiter.rate_limit("key", {"calls": 1, "tokens": 6}), 0)
    assert [each.remaining for each in (await limiter.peek("key")).states] == [10, 6]


@pytest.mark.parametrize("given", [6.5, 7, 2**53, {"per-10-seconds": 7}])
async def test_more_than_was_charged_cannot_be_refunded(store: Store, given: Any) -> None:
    """The error says how much was charged, and nothing is given back."""
    limiter = Limiter(FIXED, store=store)
    decision = await limiter.rate_limit("key", 6)
    with pytest.raises(ValueError, match=r"is more than was charged, \[6\]"):
        await limiter.refund(decision, given)
    assert await remaining_units(limiter) == 4


@pytest.mark.parametrize(
    ("quota", "cost", "actual", "retry_after", "then_left"),
    [
        (BUCKET, 10, 12, 0.3, 0),  # the bucket is down to 9 again after 0.3 s
        (SLOW, 11, 12, 0.2, 0),
        (FIXED, 10, 13, 10, 6),  # three units of the next window are spent
        (FIXED, 10, 1_000_001, 1_000_000, 8),
        (ROLLING, 10, 30, 11, 9),  # those of a part are forgotten with it
    ],
)
async def test_a_debit_delays_the_next_caller(
    store: Store, clock: SteppedClock, quota: Quota, cost: float, actual: float, retry_after: float, then_left: int
) -> None:
    """The units beyond the limit drain first, over as many windows as they fill."""
    limiter = Limiter(quota, store=store)
    await limiter.settle(await limiter.rate_limit("key", cost), actual)
    assert (await limiter.rate_limit("key")).retry_after == retry_after
    clock.advance(retry_after)
    first = await limiter.rate_limit("key")
    assert (first.allowed, first.remaining) == (True, then_left)


@pytest.mark.parametrize("quota", [BUCKET, FIXED], ids=["bucket", "fixed"])
async def test_a_debit_goes_behind_booked_slots(store: Store, quota: Quota) -> None:
    """A debit of ten units is like ten more callers at the end of the queue."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(20)]
    await limiter.settle(decisions[0], 11)
    assert await delays(limiter, 5) == (await delays(Limiter(quota, name="other", store=store), 35))[30:]


@KINDS
async def test_nothing_is_given_back_to_a_forgotten_bucket(store: Store, quota: Quota) -> None:
    """After a reset or the end of its time to live, a bucket is full, and stays so."""
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 6)
    await limiter.reset("key")
    await limiter.refund(decision)
    assert ((await limiter.peek("key")).reset_after, await remaining_units(limiter)) == (0.0, 10)


@KINDS
async def test_a_decision_made_without_redis_is_settled_without_it(quota: Quota, clock: SteppedClock) -> None:
    """The units go back to the local buckets."""
    store = RedisStore("redis://127.0.0.1:1", clock=clock, on_error="local")
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 10)
    assert decision.degraded
    await limiter.refund(decision, 4)
    assert [(await limiter.rate_limit("key", cost)).allowed for cost in (5, 4, 1)] == [False, True, False]
    await store.aclose()


@pytest.mark.parametrize("on_error", ["allow", "deny"])
async def test_an_undecided_take_has_nothing_to_settle(on_error: Any, clock: SteppedClock) -> None:
    """Where all takes pass, or none, nothing was charged."""
    store = RedisStore("redis://127.0.0.1:1", clock=clock, on_error=on_error)
    limiter = Limiter(FIXED, store=store)
    for verb in (limiter.refund, limiter.cancel, lambda decision: limiter.settle(decision, 3)):
        decision = await limiter.rate_limit("key")
        await verb(decision)
        assert decision.degraded
    await store.aclose()


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


@pytest.mark.parametrize("wrong", [None, 3, True], ids=repr)
@pytest.mark.parametrize("method", ["settle", "refund", "cancel"])
async def test_only_decisions_are_given_back(store: Store, method: str, wrong: Any) -> None:
    """The error quotes the value, and shows a right call."""
    arguments = (wrong, 1) if method == "settle" else (wrong,)
    with pytest.raises(ValueError, match=rf"not {wrong!r}: {method}\("):
        await getattr(Limiter("1/s burst 4", store=store), method)(*arguments)


@pytest.mark.parametrize("actual", [2, 3, 4])
async def test_no_repeated_block_is_settled_again(store: Store, actual: float) -> None:
    """The second of two that do the same finds that the work is done, and has needed nothing."""
    limiter = Limiter("100/day fixed", store=store)
    for units in (actual, 0):
        async with limiter.spend("key", 3, operation="message") as spent:
            spent.settle(units)
    assert (await limiter.peek("key")).remaining == 100 - actual


@pytest.mark.parametrize("burst", [1, 3])
async def test_slots_that_are_no_whole_microseconds_apart_all_come_back(store: Store, burst: int) -> None:
    """The newest first, although each slot is rounded up to a microsecond."""
    limiter = Limiter(f"7/s burst {burst}", store=store)
    booked = [await limiter.pace("key") for _ in range(20)]
    for decision in reversed(booked):
        await limiter.cancel(decision)
    assert (await limiter.peek("key")).remaining == burst
