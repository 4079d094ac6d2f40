"""Windows whose charges come to more than was charged: what that leaves for others, in memory and on Redis."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from asgi_ratelimit.algorithms import reset_us
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.debit_histories import DebitedWindow, random_history, random_versions
from tests.support.direct_script import DirectScript
from tests.support.examples import up_to
from tests.support.other_process import OtherProcess
from tests.support.redis_server import RedisServer

SOME = up_to(200).max_examples


@pytest.fixture(scope="module")
def script(redis_server: RedisServer) -> Iterator[DirectScript]:
    """The script on a Redis of its own."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client)


def require_all(seed: int, script: DirectScript | None = None) -> None:
    """At each take, room beside the actual costs; at each refund, no longer waits; in the end, all is paid back."""
    chance = random.Random(seed)
    quotas, window = random_versions(chance), DebitedWindow(script)
    random_history(chance, quotas, window)
    if len(quotas) == 1:
        window.require_paid_back(quotas[0])
    for each in chance.sample(window.open(), len(window.open())):
        window.settle(each, 0.0)
    if len(quotas) == 1:
        window.require_paid_back(quotas[0])


def test_actual_costs_count_and_debits_are_paid_back(script: DirectScript) -> None:
    """Whatever is settled to more or less, in any order, and whatever becomes of the limit; on Redis to the bit."""
    for seed in range(SOME):
        script.client.flushdb()
        require_all(seed, script)


@pytest.mark.long
def test_ten_thousand_histories() -> None:
    """In memory."""
    for seed in range(1_000_000, 1_010_000):
        require_all(seed)


HOUR = [FixedWindow(5, 3600, name="window"), RollingWindow(5, 3600, name="window")]
KINDS = pytest.mark.parametrize("quota", HOUR, ids=["fixed", "rolling"])


def of_limit(quota: Quota, limit: float, store: Store) -> Limiter:
    """A limiter of a process with that version of the quota."""
    return Limiter(replace(quota, limit=limit), store=OtherProcess(store))


@pytest.mark.anyio
@KINDS
@pytest.mark.parametrize(("actual", "left"), [(5.5, 9994), (6, 9994), (100, 9900), (10_000, 0), (10_001, 0)])
async def test_a_raised_limit_pays_a_debit_back_at_once(store: Store, quota: Quota, actual: float, left: int) -> None:
    """What was used stays used, and the rest of the new limit is free; nobody waits for the old one."""
    old, new = of_limit(quota, 5, store), of_limit(quota, 10_000, store)
    await old.settle(await old.rate_limit("key", 5), actual)
    assert not await old.rate_limit("key")
    state = await new.peek("key")
    assert (state.remaining, state.allowed) == (left, left > 0)


@pytest.mark.anyio
@KINDS
async def test_what_was_used_beyond_a_limit_stays_used_under_a_raised_one(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """A thousand units of ten, and then of a thousand: none are left now, and all of the next window."""
    old, new = of_limit(quota, 10, store), of_limit(quota, 1000, store)
    await old.settle(await old.rate_limit("key", 10), 1000)
    assert (await new.rate_limit("key", 1000, best_effort=True)).granted == 0
    refused = await new.rate_limit("key")
    clock.advance(refused.retry_after)
    assert (await new.peek("key")).remaining == 1000


@pytest.mark.anyio
@KINDS
async def test_a_lowered_limit_pays_a_debit_back_at_its_own_rate(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """Fourteen units of ten: under a limit of two, the four that are left over take two windows more."""
    old, new = of_limit(quota, 10, store), of_limit(quota, 2, store)
    await old.settle(await old.rate_limit("key", 10), 14)
    window = 3600 if isinstance(quota, FixedWindow) else 3660
    refused = await new.rate_limit("key")
    assert 2 * window < refused.retry_after <= 3 * window
    clock.advance(refused.retry_after)
    assert [(await new.rate_limit("key")).allowed for _ in range(3)] == [True, True, False]


@pytest.mark.anyio
@KINDS
async def test_what_one_version_has_paid_back_is_paid_back_for_both(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """Thirty units of ten: a version with twenty pays the rest back in the next window, and takes one unit more."""
    old, new = of_limit(quota, 10, store), of_limit(quota, 20, store)
    await old.settle(await old.rate_limit("key", 10), 30)
    clock.advance(3660)
    assert [(await new.rate_limit("key", cost)).allowed for cost in (11, 1)] == [False, True]
    assert not await old.rate_limit("key")
    clock.advance(3660)
    assert (await old.rate_limit("key", 10)).allowed


@pytest.mark.anyio
@KINDS
@pytest.mark.parametrize(("refunds", "now", "later"), [(0, 0, 0), (3, 0, 3), (4, 0, 4)])
async def test_refunds_after_a_debit_leave_what_the_actual_costs_would_have_left(
    store: Store, clock: SteppedClock, quota: Quota, refunds: int, now: int, later: int
) -> None:
    """Ten units of five are five too many: each that is given back is one less that the next window pays."""
    clock.move_to(1_800_000_000 // 3600 * 3600)
    limiter = Limiter(quota, store=store)
    taken = [await limiter.rate_limit("key") for _ in range(5)]
    await limiter.settle(taken[0], 6)
    for decision in taken[1 : 1 + refunds]:
        await limiter.refund(decision)
    assert (await limiter.peek("key")).remaining == now
    clock.advance(3661)
    assert (await limiter.peek("key")).remaining == later
    clock.advance(3661)
    assert (await limiter.peek("key")).remaining == 5


@pytest.mark.anyio
@KINDS
async def test_a_slot_ahead_that_comes_to_more_counts_in_its_own_window(
    store: Store, clock: SteppedClock, quota: Quota
) -> None:
    """Nobody takes what others cancel beside it, because it is used."""
    limiter = Limiter(quota, store=store)
    booked = [await limiter.pace("key") for _ in range(10)]
    for decision in booked[:5]:
        await limiter.cancel(decision)
    await limiter.settle(booked[9], 4)
    for decision in booked[5:8]:
        await limiter.cancel(decision)
    clock.advance(booked[9].delay)
    assert not await limiter.rate_limit("key")


@pytest.mark.anyio
@KINDS
@pytest.mark.parametrize(("actual", "windows"), [(1, 8), (5, 9), (31, 14)])
async def test_a_debit_takes_its_room_once_however_many_book_behind_it(
    store: Store, clock: SteppedClock, quota: Quota, actual: float, windows: int
) -> None:
    """The queue is as long as all actual costs."""
    clock.move_to(1_800_000_000 // 3600 * 3600)
    limiter, length = Limiter(quota, store=store), 3600 if isinstance(quota, FixedWindow) else 3660
    taken = [await limiter.rate_limit("key") for _ in range(5)]
    await limiter.settle(taken[0], actual)
    delays = [(await limiter.pace("key")).delay for _ in range(40)]
    assert delays[-1] == windows * length


@pytest.mark.anyio
@KINDS
async def test_slots_that_come_to_more_lengthen_a_queue_by_that(store: Store, quota: Quota) -> None:
    """Hardly more: a window may be left with less than the next cost."""
    limiter, length = Limiter(quota, store=store), 3600 if isinstance(quota, FixedWindow) else 3660
    for _ in range(40):
        await limiter.settle(await limiter.pace("key"), 1.5)
    assert (await limiter.pace("key")).delay <= (40 * 1.5 / 5 + 1) * length


def test_all_that_was_used_counts_until_it_is_over() -> None:
    """At one moment, the units in use are the actual costs, whatever was settled to more or less, and however often."""
    for seed in range(SOME):
        chance, window = random.Random(seed), DebitedWindow()
        quota = chance.choice([FixedWindow(5, 10, name="quota"), RollingWindow(5, 10, 5, name="quota")])
        for _ in range(30):
            if chance.random() < 0.5:
                window.take(quota, chance.choice([1, 0.5, 2]))
            elif window.open():
                each = chance.choice(window.open())
                window.settle(each, each.decision.granted * chance.choice([0, 0.5, 1.5, 4]))
            assert window.units(quota) == pytest.approx(sum(each.actual for each in window.used))
        for each in window.open():
            window.settle(each, 0.0)
        state = window.state(quota)
        if state is not None and not any(each.actual for each in window.used):
            assert reset_us(quota, state, window.now) == 0.0
