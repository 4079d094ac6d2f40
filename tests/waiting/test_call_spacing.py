"""What leaves, measured at the moment of the call, however late its caller wakes."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
from collections.abc import Callable

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import (
    Charge,
    FixedWindow,
    Limiter,
    MemoryStore,
    Quota,
    RedisStore,
    RollingWindow,
    Take,
    TokenBucket,
)
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import waiter
from asgi_ratelimit.waiting.drivers import run_async
from asgi_ratelimit.waiting.waiter import CallSpacing, SlotWaiter
from tests.stand_ins.counting_server import Bucket, Counter, Fixed, Rolling, Spaced
from tests.support.histories import Ledger
from tests.support.redis_on_clock import RedisOnClock
from tests.support.strategies import quotas

INF = float("inf")

SERVICES: dict[str, tuple[Quota, Callable[[], Counter]]] = {
    "bucket": (TokenBucket(50, burst=50), lambda: Bucket(50, 50)),
    "small bucket": (TokenBucket(50, burst=5), lambda: Bucket(50, 5)),
    "spaced": (TokenBucket(50, burst=1), lambda: Spaced(1 / 50, 1e-6)),
    "fixed": (FixedWindow(50, 10), lambda: Fixed(50, 10)),
    "rolling": (RollingWindow(50, 10, 50), lambda: Rolling(50, 10)),
}


class Calls:
    """Calls that leave on a stepped clock, each of which keeps the event loop busy for ``work`` seconds."""

    def __init__(self, quota: Quota, work: Callable[[], float], margin: float = 0.0) -> None:
        self.clock = SteppedClock(1000)
        self.waiter = SlotWaiter(MemoryStore(clock=self.clock), margin=margin)
        self.take = Take((Charge(quota, "key"),), INF)
        self.work = work
        self.left: list[float] = []

    async def call(self, after: float = 0.0) -> None:
        """Come after some seconds, and leave at a slot."""
        await asyncio.sleep(after)
        await run_async(self.waiter.wait(self.take))
        self.left.append(self.clock.now)
        self.clock.advance(self.work())

    def run(self, arrivals: list[float]) -> list[float]:
        """When calls that come at these times leave."""

        async def main() -> None:
            await asyncio.gather(*map(self.call, arrivals))

        self.clock.run(main())
        return self.left


def test_a_caller_that_goes_lets_nobody_leave_earlier() -> None:
    """Behind one that has woken late, in a rolling window."""
    calls = Calls(RollingWindow(1, 10, 100), lambda: 0.0)

    async def main() -> None:
        tasks = [asyncio.ensure_future(calls.call()) for _ in range(4)]
        await asyncio.sleep(9)
        calls.clock.advance(9)
        await asyncio.sleep(0.1)
        tasks.pop().cancel()
        await asyncio.wait(tasks)

    calls.clock.run(main())
    assert calls.left[2] - calls.left[1] >= 10


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("calls", [200, 1500])
def test_a_service_with_the_same_limit_refuses_nothing(name: str, calls: int) -> None:
    """It counts by itself; calls come at random, and the event loop is busy for 3 ms at each, now and then for 90."""
    quota, counter_of = SERVICES[name]
    chance, counter = random.Random(calls), counter_of()
    busy = Calls(quota, lambda: 0.09 if chance.random() < 0.02 else 0.003)
    left = busy.run([chance.uniform(0, calls / 60) for _ in range(calls)])
    assert [at for at in left if counter.wait(at) > 0.0] == []
    assert len(left) == calls


def test_a_slot_of_a_window_is_not_used_in_the_next_one() -> None:
    """However little time has passed since the call before it."""
    busy = iter([0.0] * 6 + [0.03, 0.09] + [0.0] * 12)
    left = Calls(FixedWindow(5, 0.1), busy.__next__).run([0.0] * 20)
    assert max(collections.Counter(round(at * 1e6) // 100_000 for at in left).values()) == 5


@given(st.data())
def test_the_promise_holds_for_what_leaves(data: st.DataObject) -> None:
    """Callers come and go at random, and the event loop is blocked for a while at random."""
    quota = data.draw(quotas("q"))
    step = st.sampled_from([0.0, 0.001, 0.05, 0.15]) | st.floats(0, float(2 * quota.period / quota.limit))
    work = data.draw(st.lists(step, min_size=20, max_size=20))
    calls, ledger = Calls(quota, lambda: work.pop() if work else 0.0), Ledger(quota)
    for at in calls.run(data.draw(st.lists(step, min_size=1, max_size=20))):
        ledger.admit(round(at * 1e6), 1)
    ledger.require_ceiling()


@pytest.mark.redis
@pytest.mark.usefixtures("unpublished", "unwatched")
def test_all_uses_of_a_bucket_are_spaced_together(redis_url: str) -> None:
    """Also those that spend, and those by another store of the same URL."""
    clock, left = SteppedClock(), list[float]()
    stores = [RedisOnClock(redis_url, clock) for _ in range(2)]
    limiters = [Limiter("100/s burst 1", store=store) for store in stores]

    async def call(number: int) -> None:
        limiter = limiters[number // 2 % 2]
        if number % 2:
            await limiter.acquire("key")
        else:
            async with limiter.spend("key", 1):
                pass
        left.append(clock.now)
        clock.advance(0.06 * (number == 3))

    async def main() -> None:
        await asyncio.gather(*map(call, range(16)))

    clock.run(main())
    for store in stores:
        store.close()
    assert min(later - before for before, later in itertools.pairwise(left)) > 0.0099


def test_calls_with_and_without_a_margin_are_spaced_together() -> None:
    """What one of them has used of their bucket counts for the other, at its own rate, and up to a lower burst."""
    departures, own = CallSpacing(), [TokenBucket(18, burst=9), TokenBucket(18, burst=9), TokenBucket(1, burst=1)]
    waits = [departures.depart((Charge(each, "a", each.burst),), 0.0, 0.1 * (each is own[0]))[0] for each in own]
    assert waits == pytest.approx([0.0, 9e6 / 18, 1e6])
    both = Charge(own[0], "b"), Charge(own[2], "a")
    assert departures.depart(both, 0.0)[0] > 0.0
    departures.give_back(both[0].bucket, 1.0)  # on which none has left
    assert departures.depart(both[:1], 0.0)[0] == 0.0


def test_databases_of_one_server_are_spaced_apart() -> None:
    """Their buckets are others, also where clients say which database it is."""
    clock = SteppedClock()
    given = [(1, 0.25), (2, 0.25), (2, 1.0)]
    stores = [RedisStore(redis.asyncio.Redis(db=db), clock=clock, timeout=timeout) for db, timeout in given]
    one, other, same = [waiter.waiters_of(store).spacing for store in stores]
    sockets = [RedisStore(f"unix:///redis.sock?db={db}", clock=clock) for db in (1, 2)]
    assert len({id(waiter.waiters_of(store).spacing) for store in sockets}) == 2
    assert one is not other
    assert other is same


def test_the_states_of_few_buckets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that calls for ever new keys keeps those that it has used last."""
    monkeypatch.setattr(waiter, "MOST_BUCKETS", 4)
    departures = CallSpacing()
    for key in "abcadefg":
        assert departures.depart((Charge(TokenBucket(1, 60, burst=2), key),), 0.0)[0] == 0.0
    assert departures.depart((Charge(TokenBucket(1, 60, burst=2), "d", 2),), 0.0)[0] > 0.0
    assert departures.depart((Charge(TokenBucket(1, 60, burst=2), "b", 2),), 0.0)[0] == 0.0


@pytest.mark.parametrize(
    ("limit", "burst", "later_us", "at_once"), [(10, 3, 5_000.0, 2), (50, 51, 25_000.0, 49), (1, 100, 50_000.0, 99)]
)
def test_the_first_call_of_a_burst_has_time_to_arrive(limit: int, burst: int, later_us: float, at_once: int) -> None:
    """In real time, its connection may have to be opened: the last of the burst leaves later, and those behind it."""
    departures, charges = CallSpacing(is_real=True), (Charge(TokenBucket(limit, burst=burst), "a"),)
    for start_us in (0.0, 1e9):
        assert [departures.depart(charges, start_us)[0] for _ in range(at_once)] == [0.0] * at_once
        assert departures.depart(charges, start_us)[0] > 0.0
        last_us = start_us + later_us + 1.0
        assert [departures.depart(charges, last_us)[0] for _ in range(burst - at_once)] == [0.0] * (burst - at_once)
        assert departures.depart(charges, last_us)[0] == pytest.approx(1e6 / limit, abs=2.0)


@given(
    st.sampled_from([50.0, 499.0, 501.0, 1000.0, 3000.0, 20_000.0]),
    st.sampled_from([1.0, 1.5, 3.0, 40.0]),
    st.lists(st.integers(0, 5000) | st.integers(0, 20), max_size=100),
)
def test_late_by_a_millisecond_is_on_time(limit: float, burst: float, steps: list[int]) -> None:
    """No interval has more calls than the quota admits, or than are due in one more millisecond after one call."""
    quota = TokenBucket(limit, burst=burst)
    departures, charges, now_us = CallSpacing(is_real=True), (Charge(quota, "key"),), 1e9
    at_most = max(burst, 1 + limit / 1000)
    ledger = Ledger(TokenBucket(limit, burst=at_most))
    for step in steps:
        now_us += step
        if departures.depart(charges, now_us)[0] == 0.0:
            ledger.admit(int(now_us), 1)
    ledger.require_ceiling()


def test_a_margin_serves_to_catch_up() -> None:
    """A call that is 8 ms late delays those behind it, each by 2 ms less: slots are 20 ms apart, calls at least 18."""
    work = iter([0.0, 0.028, *[0.0] * 6])
    left = Calls(TokenBucket(50, burst=1), lambda: next(work), margin=0.1).run([0.0] * 8)
    assert [at - 1000 for at in left] == pytest.approx([0.0, 0.02, 0.048, 0.066, 0.084, 0.102, 0.12, 0.14])
