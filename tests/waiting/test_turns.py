"""Waiting for a turn: who goes at which slot, when callers come, give up, stall and share, whatever the order."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.errors import PaceTimeout
from asgi_ratelimit.limiter import Limiter, SyncLimiter
from asgi_ratelimit.quotas import Quota, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import Turns, run_async, run_sync
from tests.support.callers import run_callers
from tests.support.histories import Ledger
from tests.support.server import ROOT
from tests.support.strategies import quotas

INF = float("inf")
EARLY = 0.005
"""Seconds by which a call may be early, at the most."""
EVEN = TokenBucket(10, burst=1)


def turn(store: Store, quota: Quota = EVEN, max_wait: float = INF, cost: float = 1) -> Coroutine[Any, Any, Decision]:
    """Wait for a turn in a task."""
    return run_async(Turns(store).wait(Take((Charge(quota, "key", cost),), max_wait)))


def test_half_of_a_crowd_gives_up() -> None:
    """The others finish when a hundred alone would have, in their order, and no slot is left booked."""
    clock = SteppedClock(0)
    store, chance = MemoryStore(clock=clock), random.Random(5)

    async def main() -> list[float]:
        callers = [asyncio.ensure_future(turn(store)) for _ in range(200)]
        await asyncio.sleep(0)
        leaving = chance.sample(callers[1:], 100)
        for caller in leaving:
            await asyncio.sleep(chance.uniform(0, 0.05))
            caller.cancel()
        finished = await asyncio.gather(*callers, return_exceptions=True)
        return [decision.ready_at for decision in finished if isinstance(decision, Decision)]

    slots = clock.run(main())
    stayed = len(slots)
    assert stayed >= 100  # those who had gone before they could give up
    assert clock.now <= (stayed - 1) / 10 * 1.05
    assert slots == sorted(slots)
    assert SteppedClock.run(clock, Limiter(EVEN, store=store).peek("key")).retry_after == pytest.approx(0.1)


@given(st.data())
def test_whoever_comes_and_goes_the_promise_holds(data: st.DataObject) -> None:
    """Every call has a slot that has come, no slot has two, and no interval holds more than its quota promises."""
    quota, clock = data.draw(quotas("q")), SteppedClock(0)
    store, ledger = MemoryStore(clock=clock), Ledger(quota)
    gaps = st.sampled_from([0.0, 0.001, 0.02]) | st.floats(0, float(2 * quota.period / quota.limit))
    plan = data.draw(st.lists(st.tuples(gaps, st.none() | gaps), min_size=1, max_size=25))

    async def call(patience: float | None) -> None:
        async with asyncio.timeout(patience):
            decision = await turn(store, quota)
        assert clock.now_us() >= round(decision.ready_at * 1e6)
        ledger.admit(clock.now_us(), 1)

    async def main() -> None:
        calls = []
        for gap, patience in plan:
            await asyncio.sleep(gap)
            calls.append(asyncio.ensure_future(call(patience)))
        await asyncio.gather(*calls, return_exceptions=True)

    clock.run(main())
    ledger.require_ceiling()
    assert sum(entry.units for entry in ledger.entries) >= sum(patience is None for _, patience in plan)


def test_nobody_overtakes_when_a_slot_comes_free_elsewhere() -> None:
    """Another process gives an early slot back: it is for the first in the queue, and all behind move up."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> list[float]:
        elsewhere = Limiter(EVEN, store=store)
        await elsewhere.pace("key")
        booked = await elsewhere.pace("key")
        callers = [asyncio.ensure_future(turn(store)) for _ in range(3)]
        await asyncio.sleep(0)
        await elsewhere.cancel(booked)
        with pytest.raises(PaceTimeout, match=r"is 0.4 s away, max_delay is 0.35 s"):
            await turn(store, max_wait=0.35)
        callers.append(asyncio.ensure_future(turn(store)))
        return [(await caller).ready_at for caller in callers]

    assert clock.run(main()) == [0.1, 0.2, 0.3, 0.4]


def test_a_key_that_is_blocked_blocks_no_other() -> None:
    """One waits for a minute, and the calls of the other start at their own slots, to the microsecond."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    turns = Turns(store)
    starts: dict[str, list[float]] = {"blocked": [], "other": []}

    async def call(key: str, quota: Quota) -> None:
        await run_async(turns.wait(Take((Charge(quota, key),), INF)))
        starts[key].append(clock.now)

    async def main() -> None:
        slow = TokenBucket(1, 60, burst=1)
        blocked = [call("blocked", slow) for _ in range(3)]
        await asyncio.gather(*blocked, *[call("other", EVEN) for _ in range(1000)])

    clock.run(main())
    assert starts["blocked"] == [0.0, 60.0, 120.0]
    assert starts["other"] == [number / 10 for number in range(1000)]


def test_a_stall_drops_the_oldest_slots_and_keeps_the_order() -> None:
    """Those who came first go first, at the slots that are still good, and as many slots are booked anew."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    ledger = Ledger(EVEN)

    async def main() -> list[tuple[int, float]]:
        async def call(number: int) -> tuple[int, float]:
            await turn(store)
            ledger.admit(clock.now_us(), 1)
            return number, clock.now

        calls = [asyncio.ensure_future(call(number)) for number in range(6)]
        await asyncio.sleep(0.1)
        clock.advance(60)
        return await asyncio.gather(*calls)

    starts = clock.run(main())
    assert [number for number, _ in starts] == list(range(6))
    assert [start for _, start in starts] == [0.0, 60.1, 60.2, 60.3, 60.4, 60.5]
    ledger.require_ceiling()


@pytest.mark.parametrize("stall", [0.15, 0.35, 1.05, 2.95])
def test_after_a_stall_nobody_overtakes(stall: float) -> None:
    """Those whose slots are still to come wait for those who have missed theirs."""
    clock = SteppedClock(0)
    store, order, ledger = MemoryStore(clock=clock), list[int](), Ledger(EVEN)

    async def call(number: int) -> None:
        decision = await turn(store)
        order.append(number)
        ledger.admit(round(decision.ready_at * 1e6), 1)

    async def main() -> None:
        calls = [asyncio.ensure_future(call(number)) for number in range(30)]
        await asyncio.sleep(0.25)
        clock.advance(stall)
        await asyncio.gather(*calls)

    clock.run(main())
    assert order == list(range(30))
    ledger.require_ceiling()


def test_a_late_caller_whom_the_store_refuses_leaves_the_others_alone() -> None:
    """It books anew, may not, and is told; those behind it still go."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> list[Any]:
        callers = [asyncio.ensure_future(turn(store, max_wait=0.3)) for _ in range(4)]
        await asyncio.sleep(0)
        clock.advance(10)
        await store.take([Take((Charge(EVEN, "key"),), INF) for _ in range(5)])
        return await asyncio.gather(*callers, return_exceptions=True)

    first, *late = clock.run(main())
    assert first.ready_at == 0.0
    assert [type(error) for error in late] == [PaceTimeout] * 3


def test_nothing_is_kept_of_those_who_have_gone() -> None:
    """Neither a queue nor a caller, and the queues of a store do not keep it alive."""
    clock = SteppedClock(0)

    async def main() -> weakref.ref[MemoryStore]:
        store = MemoryStore(clock=clock)
        await asyncio.gather(*[turn(store, cost=cost) for cost in (1, 2, 1, 2)])
        assert not Turns(store)._queues
        return weakref.ref(store)

    gone = clock.run(main())
    gc.collect()
    assert gone() is None


def test_a_thread_that_is_interrupted_gives_its_slot_back() -> None:
    """As a task does that is cancelled."""

    class Interrupting(SteppedClock):
        def wait(self, *_: object) -> None:
            raise KeyboardInterrupt

    clock = Interrupting(0)
    limiter = SyncLimiter(EVEN, store=MemoryStore(clock=clock))
    turns = Turns(limiter._limiter.store)
    run_sync(turns.wait(Take((Charge(EVEN, "key"),), INF)))
    before = limiter.peek("key")
    with pytest.raises(KeyboardInterrupt):
        run_sync(turns.wait(Take((Charge(EVEN, "key"),), INF)))
    assert limiter.peek("key") == before
    assert not turns._queues


def test_a_task_that_is_thrown_away_does_no_more() -> None:
    """Its event loop was closed, and there is nobody to give its slot back; nor is it kept anywhere."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> Coroutine[Any, Any, Decision]:
        await turn(store)
        waiting = turn(store)
        waiting.send(None)
        return waiting

    clock.run(main()).close()
    assert not Turns(store)._queues


def test_a_thread_moves_up_when_a_task_gives_up() -> None:
    """They wait in one queue; the thread goes at the slot that the task had."""
    store, quota = MemoryStore(), TokenBucket(2, burst=1)
    turns, take = Turns(store), Take((Charge(TokenBucket(2, burst=1), "key"),), INF)

    async def main() -> tuple[float, Decision]:
        first = await run_async(turns.wait(take))
        task = asyncio.ensure_future(run_async(turns.wait(take)))
        thread = asyncio.ensure_future(asyncio.to_thread(run_sync, turns.wait(take)))
        limiter = Limiter(quota, store=store)
        async with asyncio.timeout(30):
            while await limiter.waiting("key") <= 1:  # noqa: ASYNC110  # the thread has no way to tell
                await asyncio.sleep(0)
        task.cancel()
        return first.ready_at, await thread

    first, decision = asyncio.run(main())
    assert decision.ready_at == pytest.approx(first + 0.5, abs=2e-6)


FORKING = """
import os, sys, threading, time
from asgi_ratelimit import MemoryStore, TokenBucket, pace
from asgi_ratelimit._pacing import Turns

store = MemoryStore()

@pace("2/s", store=store)
def call(said):
    os.write(1, said)

call(b"parent 1\\n")
waiting = threading.Thread(target=call, args=(b"parent 2\\n",))
waiting.start()
while not Turns(store)._queues:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    assert not Turns(store)._queues
    call(b"child\\n")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
waiting.join()
"""


def test_a_forked_child_has_none_of_the_callers_that_waited() -> None:
    """They are threads and tasks of its parent; what was booked is booked."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split("\n")[:-1]) == ["child", "parent 1", "parent 2"]


# Over a store that is some way off


class Distant(MemoryStore):
    """A store to which every way takes ten milliseconds, of the event loop's time, and the way back even longer."""

    in_process = False

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        await asyncio.sleep(0.01)
        decisions = await super().take(takes)
        await asyncio.sleep(0.02 - self.clock.now_us() / 1e6 % 0.01)  # as several that are answered at once
        return decisions

    async def settle(self, settlement: Settlement) -> None:
        await asyncio.sleep(0.01)
        await super().settle(settlement)
        await asyncio.sleep(0.01)


async def later(seconds: float, call: Coroutine[Any, Any, Decision]) -> Decision:
    """A call that is made a moment later than others."""
    await asyncio.sleep(seconds)
    return await call


def test_those_behind_one_that_is_cancelled_while_it_books_move_up() -> None:
    """Its slot is not left empty, although it comes when the caller has gone."""
    clock = SteppedClock(0)
    store = Distant(clock=clock)

    async def main() -> list[float]:
        callers = [asyncio.ensure_future(later(number / 1000, turn(store))) for number in range(4)]
        await asyncio.sleep(0.015)
        callers[1].cancel()
        decisions = await asyncio.gather(*callers, return_exceptions=True)
        return [decision.ready_at for decision in decisions if isinstance(decision, Decision)]

    assert sorted(clock.run(main())) == pytest.approx([0.01, 0.11, 0.21])


def test_one_that_is_cancelled_twice_gives_its_slot_back_once() -> None:
    """The second time while it does so, and that goes on."""
    clock = SteppedClock(0)
    store = Distant(clock=clock)

    async def main() -> None:
        await turn(store)
        waiting = asyncio.ensure_future(turn(store))
        await asyncio.sleep(0.05)
        for _ in range(2):
            waiting.cancel()
            await asyncio.sleep(0.002)
        assert waiting.cancelled()
        assert await Limiter(EVEN, store=store).waiting("key") > 0
        await asyncio.sleep(0.02)
        assert await Limiter(EVEN, store=store).waiting("key") == 0

    clock.run(main())


def test_one_that_gives_up_while_another_books_anew_leaves_no_slot_behind() -> None:
    """What the late one gets is one too many, and goes back."""
    clock = SteppedClock(0)
    store = Distant(clock=clock)

    async def main() -> None:
        await turn(store)
        callers = [asyncio.ensure_future(later(number / 1000, turn(store))) for number in range(3)]
        await asyncio.sleep(0.05)
        clock.advance(0.2)  # the first is late, and asks for another slot
        await asyncio.sleep(0.005)
        callers[2].cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert await Limiter(EVEN, store=store).waiting("key") == 0
        assert (await Limiter(EVEN, store=store).peek("key")).allowed

    clock.run(main())


# Over Redis, in real time

HOURLY = TokenBucket(1, 3600, burst=1)


@pytest.fixture
async def redis_store(redis_url: str) -> AsyncIterator[RedisStore]:
    """A store on the server's own time."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    yield store
    await store.aclose()


async def until(store: Store, holds: Callable[[float], bool]) -> None:
    """Wait until the time in which the bucket is full again is right."""
    async with asyncio.timeout(30):
        while not holds((await Limiter(HOURLY, store=store).peek("key")).reset_after):
            pass


@pytest.mark.anyio
async def test_callers_that_are_cancelled_give_their_slots_back(redis_store: RedisStore) -> None:
    """By the time that they have ended."""
    await turn(redis_store, HOURLY)
    callers = [asyncio.ensure_future(turn(redis_store, HOURLY)) for _ in range(5)]
    await until(redis_store, lambda seconds: seconds > 5 * 3600)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert (await Limiter(HOURLY, store=redis_store).peek("key")).reset_after <= 3600


@pytest.mark.anyio
async def test_callers_that_are_cancelled_while_they_book_give_back_what_they_get(redis_store: RedisStore) -> None:
    """Their takes are on the way to Redis, which will book them; soon after, all is as it was."""
    limiter = Limiter(HOURLY, store=redis_store)
    await turn(redis_store, HOURLY)
    callers = [asyncio.ensure_future(turn(redis_store, HOURLY)) for _ in range(5)]
    seen = limiter.peek("key")
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert all(caller.cancelled() for caller in callers)
    await seen
    await until(redis_store, lambda seconds: seconds <= 3600)


def test_threads_loops_and_processes_share_a_budget(redis_url: str) -> None:
    """Each gets its part; no slot has two callers, nobody is early, and the promise holds over all of them."""
    calls = run_callers(redis_url, "100/s", seconds=1.0, processes=2, tasks=3, threads=3)
    slots = sorted(call.ready_at for call in calls)
    assert all(later - earlier >= 0.01 - 1e-6 for earlier, later in pairwise(slots))
    assert all(call.start >= call.ready_at - EARLY for call in calls)
    assert {call.kind for call in calls} == {"task", "other loop", "thread"}
