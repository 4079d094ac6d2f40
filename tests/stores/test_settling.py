"""Giving back, cancelling and settling, partial grants and costs by name: on each store, for each kind of quota."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import redis

from asgi_ratelimit.algorithms import MAX_HOLES
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.trial import settled

pytestmark = pytest.mark.anyio

BUCKET = TokenBucket(10, burst=10)
EVEN = TokenBucket(10, burst=1)
SLOW = TokenBucket(10, burst=11, burst_allowance_factor=0.5)
FIXED = FixedWindow(10, 10)
ROLLING = RollingWindow(10, 10, buckets=10)
KINDS = pytest.mark.parametrize("quota", [BUCKET, FIXED, ROLLING], ids=["bucket", "fixed", "rolling"])
QUEUES = pytest.mark.parametrize("quota", [EVEN, FIXED, ROLLING], ids=["even", "fixed", "rolling"])


async def left(limiter: Limiter) -> int:
    return (await limiter.peek("key")).remaining


async def delays(limiter: Limiter, callers: int) -> list[float]:
    return [(await limiter.pace("key")).delay for _ in range(callers)]


async def cancel(limiter: Limiter, decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        await limiter.cancel(decision)


# Refunds.


@KINDS
@pytest.mark.parametrize(("given", "remaining"), [(None, 10), (6, 10), (2, 6), (0.5, 4), (0, 4)])
async def test_a_refund(store: Store, quota: Quota, given: float | None, remaining: int) -> None:
    """Units of a cost of 6, or all of them, are there again."""
    limiter = Limiter(quota, store=store)
    await limiter.refund(await limiter.rate_limit("key", 6), given)
    assert await left(limiter) == remaining
    assert (await limiter.rate_limit("key", remaining)).allowed
    assert not (await limiter.rate_limit("key")).allowed


@KINDS
@pytest.mark.parametrize("given", [slice(2, 9), slice(None, None, 2)], ids=["in a row", "every other"])
async def test_refunds_add_up(store: Store, quota: Quota, given: slice) -> None:
    """Ten decisions of one unit each, of which some are given back: as many units can be taken again, one by one."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.rate_limit("key") for _ in range(10)]
    await cancel(limiter, decisions[given])
    units = len(decisions[given])
    assert await left(limiter) == units
    assert [(await limiter.rate_limit("key")).allowed for _ in range(units + 1)] == [True] * units + [False]


@pytest.mark.parametrize(
    ("quota", "given", "fitting"),
    [
        (BUCKET, slice(2, 9), 7),
        (BUCKET, slice(None, None, 2), 1),
        (BUCKET, slice(None, -1, None), 9),
        (FIXED, slice(None, None, 2), 5),
        (ROLLING, slice(None, None, 2), 5),
    ],
)
async def test_what_a_single_take_may_have_of_refunds(store: Store, quota: Quota, given: slice, fitting: int) -> None:
    """Units of a window are all alike; those of a token bucket have their places, and one take needs one gap."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.rate_limit("key") for _ in range(10)]
    await cancel(limiter, decisions[given])
    assert not (await limiter.rate_limit("key", fitting + 1)).allowed
    assert (await limiter.rate_limit("key", fitting)).allowed


@pytest.mark.parametrize(
    ("quota", "later", "remaining"),
    [(FIXED, 9, 10), (FIXED, 10, 8), (FIXED, 25, 8), (ROLLING, 9, 8), (ROLLING, 11, 8), (ROLLING, 25, 8)],
)
async def test_nothing_goes_back_to_a_later_window(
    store: Store, clock: SteppedClock, quota: Quota, later: float, remaining: int
) -> None:
    """What was charged to a window that is over is not taken off from the use of the one that has come."""
    limiter = Limiter(quota, store=store)
    old = await limiter.rate_limit("key", 2)
    clock.advance(later)
    new = await limiter.rate_limit("key", 2)
    await limiter.refund(old)
    assert await left(limiter) == 8
    await limiter.refund(new)
    assert await left(limiter) == 10


async def test_what_still_counts_in_a_rolling_window_goes_back(store: Store, clock: SteppedClock) -> None:
    """The part that was charged is long past, but its units stand in the way until they are a period old."""
    limiter = Limiter(ROLLING, store=store)
    old = await limiter.rate_limit("key", 4)
    clock.advance(5)
    await limiter.rate_limit("key", 6)
    await limiter.refund(old, 3)
    assert await left(limiter) == 3


@pytest.mark.parametrize(
    ("later", "again", "remaining"), [(0.1, 1, 9), (0.3, 3, 7), (0.9, 9, 1), (1, 10, 0), (60, 10, 0)]
)
async def test_what_has_drained_does_not_go_back(
    store: Store, clock: SteppedClock, later: float, again: float, remaining: int
) -> None:
    """After 0.3 s three of ten units have come back by themselves, and were taken again: seven are left to give."""
    limiter = Limiter(BUCKET, store=store)
    old = await limiter.rate_limit("key", 10)
    clock.advance(later)
    assert (await limiter.rate_limit("key", again)).allowed
    await limiter.refund(old)
    assert await left(limiter) == remaining


@KINDS
@pytest.mark.parametrize("later", [0, 0.5, 5, 9.99, 10, 11, 30])
async def test_never_more_than_full(store: Store, clock: SteppedClock, quota: Quota, later: float) -> None:
    """Whenever all of it is given back, what is left is the whole quota, and not more."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.rate_limit("key", cost) for cost in (4, 5, 1)]
    clock.advance(later)
    await cancel(limiter, decisions)
    assert (await limiter.rate_limit("key", 10)).allowed
    assert not (await limiter.rate_limit("key", 0.5)).allowed


@KINDS
async def test_a_decision_is_settled_once(store: Store, quota: Quota) -> None:
    """Whichever verbs follow upon the first, they do nothing."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 4)
    decision = await limiter.rate_limit("key", 4)
    await limiter.refund(decision, 1)
    await limiter.refund(decision, 1)
    await limiter.cancel(decision)
    await limiter.settle(decision, 9)
    assert await left(limiter) == 3


@KINDS
async def test_a_settlement_that_is_told_again_is_carried_out_once(store: Store, quota: Quota) -> None:
    """Where its answer got lost the caller asks again, here or in another process: the store knows it by its id."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 4)
    decision = await limiter.rate_limit("key", 4)
    await limiter.refund(decision, 2)
    again = replace(decision, settled=False)
    for verb in (limiter.refund(again), limiter.settle(replace(again, settled=False), 10)):
        await verb
    assert await left(limiter) == 4


@KINDS
async def test_copies_of_a_decision_are_settled_once(store: Store, quota: Quota) -> None:
    """Two processes that were handed the same decision give its units back once."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 4)
    decision = await limiter.rate_limit("key", 4)
    await cancel(limiter, [copy.copy(decision), copy.copy(decision), decision])
    assert await left(limiter) == 6


@KINDS
async def test_a_refused_decision_has_nothing_to_give_back(store: Store, quota: Quota) -> None:
    """Neither a refund nor a cancellation of it does anything, nor does settling it."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 8)
    for verb in (limiter.refund, limiter.cancel, lambda decision: limiter.settle(decision, 50)):
        await verb(await limiter.rate_limit("key", 5))
    assert await left(limiter) == 2


@pytest.mark.parametrize("given", [6.5, 7, 2**53, {"per-10-seconds": 7}])
async def test_more_than_was_charged_cannot_be_refunded(store: Store, given: Any) -> None:
    """The error says how much was charged, and nothing is given back."""
    limiter = Limiter(FIXED, store=store)
    decision = await limiter.rate_limit("key", 6)
    with pytest.raises(ValueError, match=r"is more than was charged, \[6\]"):
        await limiter.refund(decision, given)
    assert await left(limiter) == 4


@KINDS
@pytest.mark.parametrize(("actual", "remaining"), [(0, 10), (2, 8), (6, 4), (6.5, 3), (9, 1)])
async def test_settling(store: Store, quota: Quota, actual: float, remaining: int) -> None:
    """A cost of 6 comes to what it really was: less is given back, more is charged."""
    limiter = Limiter(quota, store=store)
    await limiter.settle(await limiter.rate_limit("key", 6), actual)
    assert await left(limiter) == remaining


@pytest.mark.parametrize(
    ("quota", "cost", "actual", "retry_after", "then_left"),
    [
        (BUCKET, 10, 12, 0.3, 0),  # the bucket is down to 9 again after 0.3 s
        (BUCKET, 10, 110, 10.1, 0),
        (BUCKET, 3, 12, 0.3, 0),
        (EVEN, 1, 1.5, 0.15, 0),
        (EVEN, 1, 100, 10.0, 0),
        (SLOW, 11, 12, 0.2, 0),
        (SLOW, 11, 111, 10.1, 0),
        (FIXED, 10, 13, 10, 6),  # three units of the next window are spent
        (FIXED, 4, 12, 10, 7),
        (FIXED, 10, 30, 30, 9),
        (FIXED, 10, 35, 30, 4),
        (FIXED, 10, 1_000_001, 1_000_000, 8),
        (ROLLING, 10, 13, 11, 6),
        (ROLLING, 4, 12, 11, 7),
        (ROLLING, 10, 30, 33, 9),
        (ROLLING, 10, 35, 33, 4),
    ],
)
async def test_debt_delays_the_next_caller(
    store: Store, clock: SteppedClock, quota: Quota, cost: float, actual: float, retry_after: float, then_left: int
) -> None:
    """What was used beyond the limit is paid back first, over as many windows as it fills."""
    limiter = Limiter(quota, store=store)
    await limiter.settle(await limiter.rate_limit("key", cost), actual)
    assert (await limiter.rate_limit("key")).retry_after == retry_after
    clock.advance(retry_after)
    first = await limiter.rate_limit("key")
    assert (first.allowed, first.remaining) == (True, then_left)


@KINDS
async def test_debt_goes_behind_what_is_booked(store: Store, quota: Quota) -> None:
    """Ten units of it are as ten more callers at the end of the queue."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(20)]
    await limiter.settle(decisions[0], 11)
    assert await delays(limiter, 5) == (await delays(Limiter(quota, name="other", store=store), 35))[30:]


NAMED = [FixedWindow(10, 60, name="requests"), TokenBucket(1000, 60, name="tokens")]


async def states(limiter: Limiter) -> list[int]:
    return [state.remaining for state in (await limiter.peek("key")).states]


@pytest.mark.parametrize(
    ("actual", "remaining"),
    [
        ({"tokens": 900}, [9, 100]),
        ({"tokens": 0}, [9, 1000]),
        ({"requests": 3, "tokens": 300}, [7, 700]),
        ({}, [9, 400]),
        (0, [10, 1000]),
    ],
)
async def test_settling_by_name(store: Store, actual: Any, remaining: list[int]) -> None:
    """Quotas that are not named keep what they were charged; a number is for all."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.rate_limit("key", {"requests": 1, "tokens": 600})
    await limiter.settle(decision, actual)
    assert await states(limiter) == remaining


async def test_a_refund_by_name(store: Store) -> None:
    """Quotas that are not named give nothing back."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.rate_limit("key", {"requests": 1, "tokens": 600})
    await limiter.refund(decision, {"tokens": 500})
    assert await states(limiter) == [9, 900]


@KINDS
async def test_a_bucket_that_has_gone_gets_nothing_back(store: Store, quota: Quota) -> None:
    """It was forgotten, by its time to live or a reset: it is full, and stays so."""
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 6)
    await limiter.reset("key")
    await limiter.refund(decision)
    assert ((await limiter.peek("key")).reset_after, await left(limiter)) == (0.0, 10)


@KINDS
async def test_a_bucket_that_has_gone_still_gets_debt(store: Store, quota: Quota) -> None:
    """What was used beyond the estimate is charged to whatever is there."""
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 6)
    await limiter.reset("key")
    await limiter.settle(decision, 8)
    assert await left(limiter) == 8


@KINDS
@pytest.mark.parametrize("later", [1e-6, 0.001, 1])
async def test_nothing_goes_back_behind_a_reset(store: Store, clock: SteppedClock, quota: Quota, later: float) -> None:
    """Units that were charged before it are not taken off from what is used after it."""
    limiter = Limiter(quota, store=store)
    old = await limiter.rate_limit("key", 6)
    clock.advance(later)
    await limiter.reset("key")
    await limiter.rate_limit("key", 5)
    await limiter.refund(old)
    assert await left(limiter) == 5


@KINDS
async def test_a_key_that_was_deleted_in_redis(redis_url: str, clock: SteppedClock, quota: Quota) -> None:
    """As when it has expired: settling makes no key that was not there for what is given back, but one for debt."""
    async with Limiter(quota, store=RedisStore(redis_url, clock=clock, timeout=30)) as limiter:
        with redis.Redis.from_url(redis_url) as client:
            less, more = [await limiter.rate_limit("key", cost) for cost in (6, 4)]
            client.flushdb()
            await limiter.refund(less)
            assert client.keys() == []
            await limiter.settle(more, 6)
            assert len(client.keys()) == 1
        assert await left(limiter) == 8


BRIEF = [TokenBucket(1000, burst=10), FixedWindow(10, 0.01), RollingWindow(10, 0.01, buckets=10)]


@pytest.mark.parametrize("quota", BRIEF, ids=["bucket", "fixed", "rolling"])
async def test_settling_after_a_key_has_expired(redis_url: str, quota: Quota) -> None:
    """By the server's clock: nothing is left to give back to, and debt is charged to the bucket as it is by then."""
    async with Limiter(quota, store=RedisStore(redis_url, timeout=30)) as limiter:
        with redis.Redis.from_url(redis_url) as client:
            less, more = [await limiter.rate_limit("key", 5, best_effort=True) for _ in range(2)]
            await settled(lambda: not client.keys())
            await limiter.refund(less)
            assert client.keys() == []
            await limiter.settle(more, more.granted + 1_000_000)
            assert len(client.keys()) == 1
        assert not (await limiter.rate_limit("key")).allowed


# Queues.


@QUEUES
@pytest.mark.parametrize("booked", [2, 11, 15])
async def test_the_newest_slot_moves_the_end_of_the_queue_back(store: Store, quota: Quota, booked: int) -> None:
    """Whoever comes next gets the very slot, again and again."""
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
    """Callers who book and go away, one after another, do not delay those who stay, whatever they had asked for."""
    limiter, other = Limiter(quota, store=store), Limiter(quota, store=store, name="other")
    for each in (limiter, other):
        await each.rate_limit("key", used)
    for _ in range(20):
        await limiter.cancel(await limiter.pace("key", cost))
    assert await delays(limiter, 5) == await delays(other, 5)


@QUEUES
@pytest.mark.parametrize("number", [1, 12, 17])
async def test_an_older_slot_is_free_for_the_next_caller(store: Store, quota: Quota, number: int) -> None:
    """That one slot, and then the queue goes on behind its end."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(20)]
    await limiter.cancel(decisions[number])
    expected = (await delays(Limiter(quota, name="other", store=store), 22))[20:]
    assert await delays(limiter, 3) == [decisions[number].delay, *expected]


@QUEUES
async def test_a_slot_that_is_over_is_not_free(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """Nobody is sent back in time: a slot that has passed when it is cancelled helps no one."""
    limiter, other = Limiter(quota, store=store), Limiter(quota, store=store, name="other")
    decisions = [await limiter.pace("key") for _ in range(40)]
    await delays(other, 40)
    clock.advance(decisions[25].delay)
    await cancel(limiter, [decisions[5]])
    assert await delays(limiter, 3) == await delays(other, 3)


@QUEUES
async def test_a_free_slot_is_not_given_to_a_cost_that_does_not_fit(store: Store, quota: Quota) -> None:
    """Half a unit fits into the slot of one, twice; two units go to the end."""
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
    """Of 200 callers nobody stays, in whatever order they leave: the next ones are served as if nobody had come."""
    limiter = Limiter(quota, store=store)
    fresh = await delays(Limiter(quota, name="other", store=store), 30)
    await cancel(limiter, order([await limiter.pace("key") for _ in range(200)]))
    assert await delays(limiter, 30) == fresh


async def test_a_bucket_whose_queue_is_cancelled_is_empty(store: Store) -> None:
    """Nothing is left of it: it is as good as never used."""
    limiter = Limiter(EVEN, store=store)
    await cancel(limiter, at_random([await limiter.pace("key") for _ in range(200)]))
    assert (await limiter.peek("key")).reset_after == 0.0


@QUEUES
async def test_every_other_slot_of_a_queue_is_cancelled(store: Store, quota: Quota) -> None:
    """The next fifty callers get exactly the fifty slots that came free, and the one after them goes to the end."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.pace("key") for _ in range(100)]
    freed = decisions[::2]
    await cancel(limiter, at_random(freed))
    assert await delays(limiter, 50) == sorted(decision.delay for decision in freed)
    assert await delays(limiter, 1) == (await delays(Limiter(quota, name="other", store=store), 101))[100:]


async def test_the_soonest_of_too_many_free_slots_are_remembered(store: Store) -> None:
    """Beyond ``MAX_HOLES`` some are lost, so that a state stays small; none is ever given twice."""
    limiter = Limiter(EVEN, store=store)
    decisions = [await limiter.pace("key") for _ in range(200)]
    freed = [decision.delay for decision in decisions[:-1:2]]
    await cancel(limiter, decisions[:-1:2])
    got = await delays(limiter, MAX_HOLES + 1)
    assert got[:MAX_HOLES] == freed[:MAX_HOLES]
    assert got[MAX_HOLES] == pytest.approx(20.0)


async def test_a_cancelled_take_frees_every_quota(store: Store) -> None:
    """A slot over several quotas is free in all of them, and only who fits into all of them gets it."""
    limiter = Limiter([replace(EVEN, name="even"), replace(FIXED, name="fixed")], store=store)
    decisions = [await limiter.pace("key") for _ in range(15)]
    await limiter.cancel(decisions[12])
    assert await delays(limiter, 2) == [decisions[12].delay, pytest.approx(10.5)]


async def test_a_free_slot_that_is_over_when_another_quota_has_room(store: Store) -> None:
    """The one at 0.5 s is of no use to a take that another quota holds up for 10 s: both book at the later end."""
    even, fixed = replace(EVEN, name="even"), replace(FIXED, name="fixed")
    limiter = Limiter([even, fixed], store=store)
    await limiter.rate_limit("key", {"fixed": 10})
    decisions = [await limiter.pace("key", {"even": 1}) for _ in range(151)]
    await limiter.cancel(decisions[5])
    assert [(await limiter.peek("key", {name: 1})).retry_after for name in ("even", "fixed")] == [0.5, 10.0]
    assert await delays(limiter, 2) == [pytest.approx(15.1), pytest.approx(15.2)]
    assert (await limiter.pace("key", {"even": 1})).delay == 0.5


# Costs by name, and costs that cannot be.


async def test_costs_by_name_are_one_take(store: Store) -> None:
    """Each quota has its own, and where one refuses, none is charged."""
    limiter = Limiter(NAMED, store=store)
    assert (await limiter.rate_limit("key", {"requests": 1, "tokens": 600})).allowed
    refused = await limiter.rate_limit("key", {"requests": 1, "tokens": 600})
    assert (refused.allowed, refused.quota.name, refused.retry_after) == (False, "tokens", 12)
    assert await states(limiter) == [9, 400]


async def test_only_named_quotas_are_charged(store: Store) -> None:
    """The others are not asked."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.pace("key", {"tokens": 10})
    assert [state.quota.name for state in decision.states] == ["tokens"]
    assert await states(limiter) == [10, 990]


@pytest.mark.parametrize("cost", [{"tokns": 1}, {"requests": 1, "tokns": 1}, {}])
async def test_a_name_that_no_quota_has(store: Store, cost: dict[str, float]) -> None:
    """It is quoted, with the names that there are, and nothing is charged."""
    limiter = Limiter(NAMED, store=store)
    wrong = [name for name in cost if name == "tokns"]
    for verb in (limiter.rate_limit, limiter.pace, limiter.peek):
        with pytest.raises(ValueError, match="where the quotas are 'requests', 'tokens'") as raised:
            await verb("key", cost)
        assert repr(wrong) in str(raised.value)
    assert await states(limiter) == [10, 1000]


async def test_a_name_that_a_decision_does_not_have(store: Store) -> None:
    """Nor can what was not charged be settled, and the decision can still be settled afterwards."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.rate_limit("key", {"tokens": 10})
    for verb in (limiter.refund, limiter.settle):
        with pytest.raises(ValueError, match=r"cost names \['requests'\], where the quotas are 'tokens'"):
            await verb(decision, {"requests": 1})
    await limiter.refund(decision)
    assert await states(limiter) == [10, 1000]


WRONG = [-1, -0.5, math.nan, math.inf, 2**53 + 1, "1", None]


@KINDS
@pytest.mark.parametrize("cost", [0, *WRONG], ids=repr)
async def test_costs_that_cannot_be(store: Store, quota: Quota, cost: Any) -> None:
    """They are a ``ValueError`` of every verb, by themselves and by name, and touch nothing."""
    limiter = Limiter(quota, store=store)
    for verb in (limiter.rate_limit, limiter.pace, limiter.peek):
        for bill in (cost, {quota.name: cost}):
            with pytest.raises(ValueError, match="cost must be a finite number above 0"):
                await verb("key", bill)
    assert (await limiter.peek("key")).reset_after == 0.0


@pytest.mark.parametrize("cost", WRONG, ids=repr)
async def test_costs_that_cannot_have_been(store: Store, cost: Any) -> None:
    """0 is a cost after the fact, but nothing else that no cost can be; a refund of ``None`` is one of all."""
    limiter = Limiter(FIXED, store=store)
    decision = await limiter.rate_limit("key", 6)
    for verb in (limiter.settle, *([limiter.refund] if cost is not None else [])):
        with pytest.raises(ValueError, match="cost must be a finite number above 0"):
            await verb(decision, cost)
    assert await left(limiter) == 4


# Partial grants.

THREE = [replace(FIXED, name="ten"), TokenBucket(5, name="five"), RollingWindow(8, 60, name="eight")]


@pytest.mark.parametrize(("cost", "granted"), [(1, 1), (0.5, 0.5), (4, 4), (4.5, 4.5), (5, 5), (6, 5), (1e9, 5)])
async def test_a_best_effort_grants_what_every_quota_has(store: Store, cost: float, granted: float) -> None:
    """The least of what there is, in whole units, is charged to each; ``granted`` says how much that is."""
    limiter = Limiter(THREE, store=store)
    decision = await limiter.rate_limit("key", cost, best_effort=True)
    assert (decision.allowed, decision.granted) == (True, granted)
    assert await states(limiter) == [math.floor(most - granted) for most in (10, 5, 8)]


@KINDS
@pytest.mark.parametrize(("used", "granted"), [(0, 8), (2, 8), (2.5, 7), (9, 1)])
async def test_a_best_effort_grants_whole_units(store: Store, quota: Quota, used: float, granted: float) -> None:
    """Of 7.5 units that are left, seven."""
    limiter = Limiter(quota, store=store)
    if used:
        await limiter.rate_limit("key", used)
    assert (await limiter.rate_limit("key", 8, best_effort=True)).granted == granted


@pytest.mark.parametrize(("quota", "granted"), [(BUCKET, [2, 1, 0]), (FIXED, [3, 0, 0]), (ROLLING, [3, 0, 0])])
async def test_a_best_effort_in_gaps(store: Store, quota: Quota, granted: list[float]) -> None:
    """Of three units that were given back, two side by side, a token bucket grants these two, and then the other."""
    limiter = Limiter(quota, store=store)
    decisions = [await limiter.rate_limit("key") for _ in range(10)]
    await cancel(limiter, [decisions[number] for number in (3, 4, 7)])
    assert [(await limiter.rate_limit("key", 5, best_effort=True)).granted for _ in range(3)] == granted


@pytest.mark.parametrize(
    ("quota", "used", "retry_after"), [(BUCKET, 10, 0.1), (BUCKET, 9.5, 0.05), (FIXED, 10, 10), (ROLLING, 9.5, 11)]
)
async def test_a_best_effort_of_less_than_one_is_refused(
    store: Store, quota: Quota, used: float, retry_after: float
) -> None:
    """``retry_after`` is the time until there is one unit, not until there is all that was asked for."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", used)
    refused = await limiter.rate_limit("key", 8, best_effort=True)
    assert (refused.allowed, refused.granted, refused.retry_after) == (False, 0, retry_after)


@KINDS
@pytest.mark.parametrize(("given", "remaining"), [(None, 7), (2, 2)])
async def test_a_partial_grant_gives_back_what_was_granted(
    store: Store, quota: Quota, given: float | None, remaining: int
) -> None:
    """Not what was asked for."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 3)
    partial = await limiter.rate_limit("key", 50, best_effort=True)
    with pytest.raises(ValueError, match="more than was charged"):
        await limiter.refund(partial, 8)
    await limiter.refund(partial, given)
    assert await left(limiter) == remaining


async def test_a_best_effort_needs_one_cost(store: Store) -> None:
    """Quotas of tokens and of requests have no amount in common that could be granted."""
    with pytest.raises(ConfigurationError, match="best_effort needs one cost for all charges"):
        await Limiter(NAMED, store=store).rate_limit("key", {"requests": 1, "tokens": 50}, best_effort=True)


@pytest.mark.parametrize("max_wait", [0.001, 1, math.inf])
def test_a_best_effort_does_not_wait(max_wait: float) -> None:
    """It takes what is there now."""
    with pytest.raises(ConfigurationError, match="best_effort grants what is there now"):
        Take((Charge(FIXED, "key"),), max_wait, best_effort=True)


# Without a store.


@KINDS
async def test_what_was_decided_without_redis_is_settled_without_it(quota: Quota, clock: SteppedClock) -> None:
    """The limiter that took over gets back what it gave."""
    store = RedisStore("redis://127.0.0.1:1", clock=clock, on_error="local")
    limiter = Limiter(quota, store=store)
    decision = await limiter.rate_limit("key", 10)
    assert decision.degraded
    await limiter.refund(decision, 4)
    assert [(await limiter.rate_limit("key", cost)).allowed for cost in (5, 4, 1)] == [False, True, False]
    await store.aclose()


@pytest.mark.parametrize("on_error", ["allow", "deny"])
async def test_what_nobody_decided_has_nothing_to_settle(on_error: Any, clock: SteppedClock) -> None:
    """Where everybody passes, or nobody, nothing was charged."""
    store = RedisStore("redis://127.0.0.1:1", clock=clock, on_error=on_error)
    limiter = Limiter(FIXED, store=store)
    for verb in (limiter.refund, limiter.cancel, lambda decision: limiter.settle(decision, 3)):
        decision = await limiter.rate_limit("key")
        await verb(decision)
        assert decision.degraded
    await store.aclose()
