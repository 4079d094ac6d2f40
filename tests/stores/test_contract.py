"""The contract of all stores, run over each of them on a clock that is stepped by hand.

What is more to say of costs, settling, cancelled slots, operations and changing limits is in the modules beside it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import redis

from asgi_ratelimit import Limiter, RedisStore
from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.quotas import MAX_CHARGES, FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store, settle
from asgi_ratelimit.stores.base import settlements_of
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
THREE = TokenBucket(10, burst=3, name="three")
HOURLY = TokenBucket(1, 3600, name="hourly")
FIXED = FixedWindow(3, 10, name="fixed")
ROLLING = RollingWindow(3, 10, 10, name="rolling")
KINDS = pytest.mark.parametrize("quota", [THREE, FIXED, ROLLING], ids=lambda quota: quota.name)


async def take(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return (await store.take([Take(charges, max_wait)]))[0]


async def peek(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return await store.peek(Take(charges, max_wait))


async def test_a_decision_is_complete(store: Store, clock: SteppedClock) -> None:
    """It has all that headers, logs and callers that sleep need."""
    decision = await take(store, Charge(THREE, "key", 2))
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (True, 2, 0.0, 0.0)
    assert (decision.remaining, decision.reset_after, decision.ready_at) == (1, 0.2, clock.now)
    assert (decision.quota, decision.degraded, decision.shadow) == (THREE, False, False)
    assert decision.take == Take((Charge(THREE, "key", 2),))


REFUSALS = {
    "now": Take((Charge(THREE, "key", 2), Charge(FIXED, "key", 2), Charge(ROLLING, "key", 2))),
    "soon": Take((Charge(THREE, "key", 2), Charge(FIXED, "key", 2), Charge(ROLLING, "new", 1)), 0.01),
    "at all": Take((Charge(THREE, "key", 4),)),
    "a part": Take((Charge(ROLLING, "new", 5), Charge(EVEN, "key", 5)), best_effort=True),
    "an operation": Take((Charge(THREE, "key", 2), Charge(ROLLING, "new", 1)), operation="id"),
}


@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_changes_nothing(store: Store, clock: SteppedClock, refused: Take) -> None:
    """However often it is asked: no bucket has another state, and nobody waits longer."""
    charges = [Charge(quota, key) for quota in (THREE, FIXED, ROLLING, EVEN) for key in ("key", "new")]
    for charge in charges[::2]:
        await take(store, replace(charge, cost=charge.quota.most))
    clock.advance(0.05)
    before = [await peek(store, charge) for charge in charges]
    for _ in range(5):
        decisions = await store.take([refused, refused])
        assert [decision.allowed for decision in decisions] == [False, False]
    assert [await peek(store, charge) for charge in charges] == before


@KINDS
async def test_retry_after_is_exact(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """A microsecond earlier, the same take is refused; then it is allowed."""
    for cost in (2, 1):
        await take(store, Charge(quota, "key", cost))
        clock.advance(0.033333)
    for _ in range(5):
        refused = await take(store, Charge(quota, "key", 2))
        clock.advance(refused.retry_after - 1e-6)
        (again, _) = await store.take([Take((Charge(quota, "key", 2),)), Take((Charge(quota, "other", 4),))])
        assert (again.allowed, again.retry_after) == (False, 1e-6)
        clock.advance(1e-6)
        assert (await take(store, Charge(quota, "key", 2))).allowed


async def test_charges_of_a_take_are_booked_at_one_moment(store: Store) -> None:
    """The longest wait applies to all of them."""
    await take(store, Charge(EVEN, "key"))
    decision = await take(store, Charge(THREE, "key"), Charge(EVEN, "key"), max_wait=1.0)
    assert decision.delay == 0.1
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.2


async def test_the_takes_of_one_call_see_each_other(store: Store) -> None:
    """They are decided in their order, and a refused one in between changes nothing for the next."""
    costs = [1, 3, 2, 1]
    decisions = await store.take([Take((Charge(THREE, "key", cost),)) for cost in costs])
    assert [decision.allowed for decision in decisions] == [True, False, True, False]
    assert [decision.remaining for decision in decisions] == [2, 2, 0, 0]


async def test_a_peek_says_what_a_take_would(store: Store) -> None:
    """For pacing, too: the delay that a take would have been given."""
    await take(store, Charge(EVEN, "key"))
    assert (await peek(store, Charge(EVEN, "key"), max_wait=1)).delay == 0.1
    assert (await peek(store, Charge(EVEN, "key", 5))).retry_after == math.inf


@KINDS
async def test_a_bucket_is_as_new_when_its_decision_says(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """After ``reset_after`` all of it is there, and a microsecond earlier it is not."""
    used = await take(store, Charge(quota, "key", 2))
    clock.advance(used.reset_after - 1e-6)
    assert (await peek(store, Charge(quota, "key"))).reset_after == 1e-6
    clock.advance(1e-6)
    new = await peek(store, Charge(quota, "key", 3))
    assert (new.allowed, new.remaining, new.reset_after) == (True, 3, 0.0)


async def test_a_reset_forgets(store: Store) -> None:
    """It forgets the named buckets and no others; one that was never used is no error."""
    for quota, key in [(HOURLY, "a"), (HOURLY, "b"), (EVEN, "a")]:
        await take(store, Charge(quota, key))
    await store.reset([Charge(HOURLY, "a"), Charge(HOURLY, "unknown")])
    assert (await take(store, Charge(HOURLY, "a"))).allowed
    assert not (await take(store, Charge(HOURLY, "b"))).allowed
    assert not (await take(store, Charge(EVEN, "a"))).allowed


KEYS: list[str | bytes] = [
    *("", "\0", "a", "a:b", "{a}", "{}", "%", "%#", "a\r\nb"),
    *("ä", "\U0001f600", "\ud800", b"\xff", "\xff", "k" * 129, "ä" * 65, "\ud800" * 5_000),
]


async def test_keys_of_any_content_are_apart(store: Store) -> None:
    """Whatever a key contains, and however long it is, it has a bucket of its own."""
    limiter = Limiter(HOURLY, store=store)
    assert [(await limiter.rate_limit(key)).allowed for key in KEYS] == [True] * len(KEYS)
    assert [(await limiter.rate_limit(key)).allowed for key in KEYS] == [False] * len(KEYS)


async def test_a_take_may_have_many_charges(store: Store) -> None:
    """As many charges as it may have are still one take, all or nothing."""
    charges = [Charge(HOURLY, f"key {number}") for number in range(MAX_CHARGES)]
    assert (await take(store, *charges)).allowed
    assert not (await take(store, charges[-1], Charge(HOURLY, "key"))).allowed
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 1


async def test_a_store_can_be_used_again_after_it_was_closed(store: Store) -> None:
    """Closing drops connections, not states; closing twice is no error."""
    await take(store, Charge(HOURLY, "key"))
    await store.aclose()
    await store.aclose()
    assert not (await take(store, Charge(HOURLY, "key"))).allowed


# What came to less or more, and what is sent again


async def test_a_refusal_and_a_condition_have_nothing_to_settle(store: Store) -> None:
    """Nothing was charged."""
    decision = await take(store, Charge(THREE, "key", 3), Condition(EVEN, "pause"))
    assert len(await settle(store, decision, [3, 0])) == 1
    assert await settle(store, await take(store, Charge(THREE, "key")), [0]) == []


async def test_the_same_token_may_settle_again(store: Store) -> None:
    """Whoever had no answer sends it once more, and is the first one still; others are not."""
    decision = await take(store, Charge(THREE, "key", 2))
    (settlement,) = settlements_of(decision, [1])
    answers = [await store.settle([replace(settlement, token=token)]) for token in (7, 7, 8, 0)]
    assert [answer.is_first for (answer,) in answers] == [True, True, False, False]
    assert (await peek(store, Charge(THREE, "key"))).remaining == 2
    without = replace(settlement, id=settlement.id + 1)
    assert [(await store.settle([without]))[0].is_first for _ in range(2)] == [True, False]


async def test_a_settlement_that_comes_too_late_does_nothing(store: Store, clock: SteppedClock) -> None:
    """From the time on at which its mark may be forgotten."""
    decision = await take(store, Charge(HOURLY, "key"))
    (settlement,) = settlements_of(decision, [0])
    clock.advance(10)
    (late,) = await store.settle([replace(settlement, until_us=float(clock.now_us()))])
    assert not late.is_first
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 0


# Times to live: what is written is forgotten once it means nothing


@pytest.fixture
async def server(redis_url: str, client: redis.Redis) -> AsyncIterator[tuple[RedisStore, redis.Redis]]:
    """A store that goes by the clock of its server, and a client that sees the keys."""
    store = RedisStore(redis_url, timeout=30, on_error="deny", operation_ttl=5)
    yield store, client
    await store.aclose()


@pytest.mark.parametrize(
    ("quota", "least", "most"),
    [
        (TokenBucket(3, 60), 19_000, 20_001),
        (TokenBucket(3, 60, burst_allowance_factor=0.5), 39_000, 40_001),
        (FixedWindow(3, 400 * 86_400), 1, 400 * 86_400_000),
        (RollingWindow(3, 60, 6), 59_000, 70_000),
    ],
    ids=repr,
)
async def test_a_key_lives_for_as_long_as_its_bucket_is_in_use(
    server: tuple[RedisStore, redis.Redis], quota: Quota, least: int, most: int
) -> None:
    """Of Redis, in milliseconds: never without an end, and a refusal does not make it longer."""
    store, client = server
    await take(store, Charge(quota, "key"))
    (key,) = client.keys()
    assert least <= client.pttl(key) <= most
    client.pexpire(key, 500_000_000)
    assert not (await take(store, Charge(quota, "key", 3))).allowed
    assert client.pttl(key) > 400_000_000


async def test_operations_and_settlements_live_for_their_time(server: tuple[RedisStore, redis.Redis]) -> None:
    """Of Redis: for ``operation_ttl``, rounded up."""
    store, client = server
    (decision,) = await store.take([Take((Charge(HOURLY, "key"),), operation="id")])
    await settle(store, decision, [0.5])
    others = [client.pttl(key) for key in client.scan_iter() if not key.endswith(b"}")]
    assert len(others) == 2
    assert all(4_000 <= left <= 5_001 for left in others)


# Conditions


async def test_a_condition_is_waited_for_and_writes_nothing(store: Store, clock: SteppedClock) -> None:
    """A take with it has its slot when both buckets allow it; the bucket of the condition stays as it is."""
    paused = Condition(EVEN, "pause")
    await take(store, Charge(EVEN, "pause", 5), max_wait=1.0)
    decision = await take(store, Charge(THREE, "key"), paused, max_wait=1.0)
    assert (decision.allowed, decision.delay, decision.granted) == (True, 0.4, 1)
    clock.advance(0.1)
    refused = await take(store, Charge(THREE, "other"), paused)
    assert (refused.allowed, refused.retry_after) == (False, 0.3)
    assert (await peek(store, Charge(EVEN, "pause", 1))).retry_after == 0.4
    clock.advance(0.3)
    assert (await take(store, Charge(THREE, "other"), paused)).delay == 0.0


# Clocks that are set back, and limits that change


@pytest.mark.parametrize("back", [0.5, 1.0, 3_600.0, 86_400.0 * 365])
async def test_a_clock_that_goes_back_grants_nothing_and_locks_nobody_out(
    store: Store, clock: SteppedClock, back: float
) -> None:
    """Time stands still: an exhausted bucket has as long to wait as before, however far the clock went."""
    charges = [
        Charge(quota, "key", 3)
        for quota in (THREE, FixedWindow(3, 1, name="fixed"), RollingWindow(3, 1, 10, name="rolling"))
    ]
    for charge in charges:
        await take(store, charge)
    before = [(await take(store, charge)).retry_after for charge in charges]
    clock.advance(-back)
    after = [(await take(store, charge)).retry_after for charge in charges]
    assert all(0 < wait <= 1.2 for wait in after)
    assert after[0] == before[0] == 0.3
    clock.advance(1.2)
    assert [(await take(store, charge)).allowed for charge in charges] == [True] * 3


async def test_a_refund_after_the_clock_went_back_takes_nothing_from_others(store: Store, clock: SteppedClock) -> None:
    """A bucket no longer knows the times of what was charged before."""
    quota = TokenBucket(60, 60, burst=10)
    first = await take(store, Charge(quota, "key", 10))
    clock.advance(-5)
    assert not await take(store, Charge(quota, "key", 10))
    clock.advance(5)
    assert await take(store, Charge(quota, "key", 5))
    await settle(store, first, [0])
    assert (await peek(store, Charge(quota, "key"))).remaining == 0


@pytest.mark.parametrize(
    ("old", "new", "back"),
    [
        (TokenBucket(10, 60), TokenBucket(1000, 60), 0),
        (FixedWindow(10, 60), FixedWindow(1000, 60), 0),
        (RollingWindow(10, 60), RollingWindow(1000, 60), 5),
    ],
)
async def test_what_calls_under_earlier_numbers_settle(
    store: Store, clock: SteppedClock, old: Quota, new: Quota, back: int
) -> None:
    """They never give back what others have taken since, and owe what they debit."""
    calls = [await take(store, Charge(old, "key")) for _ in range(10)]
    await take(store, Charge(new, "key", new.most - 10))
    for call in calls[:5]:
        await settle(store, call, [0])
    assert (await peek(store, Charge(new, "key"))).remaining == back
    for call in calls[5:]:
        await settle(store, call, [2])
    assert (await peek(store, Charge(new, "key"))).remaining == 0


@pytest.mark.parametrize(
    "quota", [TokenBucket(1e6, burst=10.9999), TokenBucket(2.0**40, 2.5, burst=1), FixedWindow(2**40, 9)]
)
async def test_no_more_is_left_than_fits_at_once(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """A best effort is granted that much of an unused bucket."""
    assert (await peek(store, Charge(quota, "key"))).remaining == int(quota.most)
    assert (await store.take([Take((Charge(quota, "key", 2.0**41),), best_effort=True)]))[0].granted == int(quota.most)
