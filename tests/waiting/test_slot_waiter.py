"""Waiting for a slot: which caller goes at which slot, when callers come, give up, stall and share."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Decision, Settled, Settlement, Take
from asgi_ratelimit.limiter import Limiter, SyncLimiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import PaceTimeout, SlotWaiter, run_async, run_sync, waiters_of
from tests.support.histories import Ledger
from tests.support.late_stores import SlowStore
from tests.support.server import ROOT
from tests.support.strategies import quotas

INF = float("inf")
EVEN = TokenBucket(10, burst=1)


def wait_for_slot(
    store: Store, quota: Quota = EVEN, max_wait: float = INF, cost: float = 1
) -> Coroutine[Any, Any, Decision]:
    """Wait for a slot in a task."""
    return run_async(SlotWaiter(store).wait(Take((Charge(quota, "key", cost),), max_wait)))


def test_half_of_a_crowd_gives_up() -> None:
    """The other callers finish as early as a hundred callers alone, in their order, and no slot stays booked."""
    clock = SteppedClock(0)
    store, chance = MemoryStore(clock=clock), random.Random(5)

    async def main() -> list[float]:
        callers = [asyncio.ensure_future(wait_for_slot(store)) for _ in range(200)]
        await asyncio.sleep(0)
        leaving = chance.sample(callers[1:], 100)
        for caller in leaving:
            await asyncio.sleep(chance.uniform(0, 0.05))
            caller.cancel()
        finished = await asyncio.gather(*callers, return_exceptions=True)
        return [decision.ready_at for decision in finished if isinstance(decision, Decision)]

    slots = clock.run(main())
    stayed = len(slots)
    assert stayed >= 100  # some had gone before they could give up
    assert clock.now <= (stayed - 1) / 10 * 1.05
    assert slots == sorted(slots)
    assert SteppedClock.run(clock, Limiter(EVEN, store=store).peek("key")).retry_after == pytest.approx(0.1)


@given(st.data())
def test_the_promise_holds_when_callers_come_and_go(data: st.DataObject) -> None:
    """Every call has its own slot, the slot has come, and no interval has more calls than the quota allows."""
    quota, clock = data.draw(quotas("q")), SteppedClock(0)
    store, ledger = MemoryStore(clock=clock), Ledger(quota)
    gaps = st.sampled_from([0.0, 0.001, 0.02]) | st.floats(0, float(2 * quota.period / quota.limit))
    plan = data.draw(st.lists(st.tuples(gaps, st.none() | gaps), min_size=1, max_size=25))

    async def call(max_seconds: float | None) -> None:
        async with asyncio.timeout(max_seconds):
            decision = await wait_for_slot(store, quota)
        assert clock.now_us() >= round(decision.ready_at * 1e6)
        ledger.admit(clock.now_us(), 1)

    async def main() -> None:
        calls = []
        for gap, max_seconds in plan:
            await asyncio.sleep(gap)
            calls.append(asyncio.ensure_future(call(max_seconds)))
        await asyncio.gather(*calls, return_exceptions=True)

    clock.run(main())
    ledger.require_ceiling()
    assert sum(entry.units for entry in ledger.entries) >= sum(max_seconds is None for _, max_seconds in plan)


def test_no_caller_overtakes_when_a_slot_is_given_back_elsewhere() -> None:
    """Another process gives an early slot back: those that are booked behind it keep theirs, and it passes unused."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> list[float]:
        elsewhere = Limiter(EVEN, store=store)
        await elsewhere.pace("key")
        booked = await elsewhere.pace("key")
        callers = [asyncio.ensure_future(wait_for_slot(store)) for _ in range(3)]
        await asyncio.sleep(0)
        await elsewhere.cancel(booked)
        with pytest.raises(PaceTimeout, match=r"is 0.5 s away, max_delay is 0.35 s"):
            await wait_for_slot(store, max_wait=0.35)
        callers.append(asyncio.ensure_future(wait_for_slot(store)))
        return [(await caller).ready_at for caller in callers]

    assert clock.run(main()) == pytest.approx([0.2, 0.3, 0.4, 0.5])


def test_a_blocked_key_blocks_no_other_key() -> None:
    """One key waits for a minute, and the calls of the other start at their slots, to the microsecond."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    waiter = SlotWaiter(store)
    starts: dict[str, list[float]] = {"blocked": [], "other": []}

    async def call(key: str, quota: Quota) -> None:
        await run_async(waiter.wait(Take((Charge(quota, key),), INF)))
        starts[key].append(clock.now)

    async def main() -> None:
        slow = TokenBucket(1, 60, burst=1)
        blocked = [call("blocked", slow) for _ in range(3)]
        await asyncio.gather(*blocked, *[call("other", EVEN) for _ in range(1000)])

    clock.run(main())
    assert starts["blocked"] == [0.0, 60.0, 120.0]
    assert starts["other"] == [number / 10 for number in range(1000)]


def test_a_stall_drops_the_oldest_slots_and_keeps_the_order() -> None:
    """The first callers go first, at the slots that are still valid, and each missed slot is booked again."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    ledger = Ledger(EVEN)

    async def main() -> list[tuple[int, float]]:
        async def call(number: int) -> tuple[int, float]:
            await wait_for_slot(store)
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
def test_no_caller_overtakes_after_a_stall(stall: float) -> None:
    """Callers whose slots are still to come wait for the callers that have missed theirs."""
    clock = SteppedClock(0)
    store, order, ledger = MemoryStore(clock=clock), list[int](), Ledger(EVEN)

    async def call(number: int) -> None:
        decision = await wait_for_slot(store)
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


@pytest.mark.parametrize("is_distant", [False, True])
def test_a_missed_slot_is_booked_anew_within_what_is_left(is_distant: bool) -> None:
    """Of the longest wait of its caller, also if it is missed again; a caller with nothing left is refused."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    store.in_process = not is_distant

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(wait_for_slot(store, TokenBucket(1, burst=1), 2.0)) for _ in range(3)]
        await asyncio.sleep(0.5)
        for _ in range(3):
            clock.advance(1.15)
            await asyncio.sleep(0.01)
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = clock.run(main())
    assert any(isinstance(outcome, PaceTimeout) for outcome in outcomes)
    assert clock.now < 4.0  # nobody waits after the last stall


@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
def test_many_slots_that_are_missed_at_once_count_once_against_max_delay(kind: type[MemoryStore]) -> None:
    """One caller at the head books one anew for each of them; nobody is refused whose slot is near enough."""
    clock = SteppedClock(0)
    store = kind(clock=clock)

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(wait_for_slot(store, max_wait=8.0)) for _ in range(30)]
        await asyncio.sleep(0.25)
        clock.advance(1.05)
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [outcome for outcome in clock.run(main()) if isinstance(outcome, PaceTimeout)] == []
    assert clock.now < 5.0


@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
def test_callers_that_move_down_after_a_stall_wait_no_longer_than_max_delay(kind: type[MemoryStore]) -> None:
    """Those in front may go first, however little is left of theirs; one behind them that may wait longer goes too."""
    clock = SteppedClock(0)
    store = kind(clock=clock)
    ended = list[tuple[int, float, bool]]()

    async def call(number: int, max_wait: float) -> None:
        try:
            await wait_for_slot(store, max_wait=max_wait)
        except PaceTimeout:
            ended.append((number, clock.now, False))
        else:
            ended.append((number, clock.now, True))

    async def main() -> None:
        calls = [asyncio.ensure_future(call(number, 2.0)) for number in range(20)]
        await asyncio.sleep(0.25)
        calls.append(asyncio.ensure_future(call(20, INF)))
        clock.advance(1.0)
        await asyncio.gather(*calls)

    clock.run(main())
    left = [number for number, _, has_left in ended if has_left]
    assert left == [*range(len(left) - 1), 20]
    assert len(left) >= 10
    assert max(at for number, at, _ in ended if number < 20) < 2.1  # the slot of the last one is late by the distance
    assert max(at for _, at, _ in ended) < 2.5  # the slots of those who were refused are free again


class BusyStore(MemoryStore):
    """Each of its calls takes ``call_us``, and it refuses to make more than ``most`` of them.

    ``at_once`` is the largest number of calls in one iteration of the event loop.
    """

    call_us = 0.0
    most = 10_000

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock=clock)
        self.stepped = clock
        self.at_once = self._in_iteration = 0

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        self._called()
        return await super().take(takes)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._called()
        return await super().settle(settlements)

    def _called(self) -> None:
        self.stepped.advance(self.call_us / 1e6)
        self.most -= 1
        if self.most <= 0:
            raise RuntimeError("the store is called without end")
        if not self._in_iteration:
            asyncio.get_running_loop().call_soon(self._next_iteration)
        self._in_iteration += 1
        self.at_once = max(self.at_once, self._in_iteration)

    def _next_iteration(self) -> None:
        self._in_iteration = 0


async def stalled_crowd(store: BusyStore, quota: Quota, count: int, call_us: float) -> list[float]:
    """When each of many callers leaves, after a stall of a minute; from then on, each call of the store takes time."""
    left: list[float] = []

    async def call() -> None:
        await wait_for_slot(store, quota)
        left.append(store.stepped.now)

    calls = [asyncio.ensure_future(call()) for _ in range(count)]
    await asyncio.sleep(0.0001)
    store.stepped.advance(60)
    store.call_us, store.at_once = call_us, 0
    await asyncio.gather(*calls)
    return left


def test_a_crowd_leaves_although_slots_are_booked_anew_more_slowly_than_they_come() -> None:
    """Whoever has a slot that is good goes; each slot is booked anew once, and not all of them before anyone leaves."""
    clock, quota = SteppedClock(0), TokenBucket(1000, burst=2)
    store, ledger = BusyStore(clock), Ledger(quota)
    left = clock.run(stalled_crowd(store, quota, 300, 2_000))
    assert len(left) == 300
    assert store.most > 10_000 - 300 - 2 * 300
    late = [at for at in left if at > 1]
    assert late[0] < 60.1
    for at in left:
        ledger.admit(round(at * 1e6), 1)
    ledger.require_ceiling()


@pytest.mark.parametrize(
    "quota", [EVEN, TokenBucket(100, burst=10), FixedWindow(10, 1), RollingWindow(10, 1, buckets=10)]
)
def test_slots_that_were_missed_together_are_booked_anew_a_few_at_a_time(quota: Quota) -> None:
    """The event loop runs other tasks in between."""
    clock = SteppedClock(0)
    store, ledger = BusyStore(clock), Ledger(quota)
    left = clock.run(stalled_crowd(store, quota, 200, 0))
    assert store.at_once < 50
    for at in left:
        ledger.admit(round(at * 1e6), 1)
    ledger.require_ceiling()


def test_the_slot_of_an_operation_is_not_missed() -> None:
    """However late its caller wakes, it leaves at the slot that was charged, and is charged once."""
    clock = SteppedClock(0)

    async def main() -> None:
        limiter = Limiter(EVEN, store=MemoryStore(clock=clock))
        calls = [asyncio.ensure_future(limiter.acquire("key", operation=f"job {number}")) for number in range(2)]
        await asyncio.sleep(0)
        clock.advance(60)
        assert [decision.ready_at for decision in await asyncio.gather(*calls)] == [0.0, 0.1]
        assert (await limiter.peek("key")).allowed

    clock.run(main())


def test_a_late_caller_that_the_store_refuses_does_not_affect_the_others() -> None:
    """It cannot book again, and raises; the callers behind it still go."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> list[Any]:
        callers = [asyncio.ensure_future(wait_for_slot(store, max_wait=0.3)) for _ in range(4)]
        await asyncio.sleep(0)
        clock.advance(10)
        await store.take([Take((Charge(EVEN, "key"),), INF) for _ in range(5)])
        return await asyncio.gather(*callers, return_exceptions=True)

    first, *late = clock.run(main())
    assert first.ready_at == 0.0
    assert [type(error) for error in late] == [PaceTimeout] * 3
    assert {str(error).split(",", 1)[1] for error in late} == {" max_delay is 0.3 s"}


def test_no_reference_to_past_callers_remains() -> None:
    """Neither a queue nor a caller remains, and the queues of a store do not keep the store alive."""
    clock = SteppedClock(0)

    async def main() -> weakref.ref[MemoryStore]:
        store = MemoryStore(clock=clock)
        await asyncio.gather(*[wait_for_slot(store, cost=cost) for cost in (1, 2, 1, 2)])
        assert not waiters_of(store).slots
        return weakref.ref(store)

    gone = clock.run(main())
    gc.collect()
    assert gone() is None


def test_a_thread_that_is_interrupted_gives_its_slot_back() -> None:
    """Like a task that is cancelled."""

    class Interrupting(SteppedClock):
        def wait(self, *_: object) -> None:
            raise KeyboardInterrupt

    store = MemoryStore(clock=Interrupting(0))
    limiter, waiter = SyncLimiter(EVEN, store=store), SlotWaiter(store)
    run_sync(waiter.wait(Take((Charge(EVEN, "key"),), INF)))
    before = limiter.peek("key")
    with pytest.raises(KeyboardInterrupt):
        run_sync(waiter.wait(Take((Charge(EVEN, "key"),), INF)))
    assert limiter.peek("key") == before
    assert not waiters_of(store).slots


def test_a_task_that_is_closed_leaves_its_queue() -> None:
    """Its event loop is closed, so its slot cannot be given back; no reference to it remains."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)

    async def main() -> Coroutine[Any, Any, Decision]:
        await wait_for_slot(store)
        waiting = wait_for_slot(store)
        waiting.send(None)
        return waiting

    clock.run(main()).close()
    assert not waiters_of(store).slots


def test_a_thread_moves_up_when_a_task_gives_up() -> None:
    """They wait in one queue; the thread gets the slot of the task."""
    store, quota = MemoryStore(), TokenBucket(2, burst=1)
    waiter, take = SlotWaiter(store), Take((Charge(TokenBucket(2, burst=1), "key"),), INF)

    async def main() -> tuple[float, Decision]:
        first = await run_async(waiter.wait(take))
        task = asyncio.ensure_future(run_async(waiter.wait(take)))
        thread = asyncio.ensure_future(asyncio.to_thread(run_sync, waiter.wait(take)))
        limiter = Limiter(quota, store=store)
        async with asyncio.timeout(60):
            while await limiter.waiting("key") <= 1:  # noqa: ASYNC110  # the thread cannot signal that it waits
                await asyncio.sleep(0)
        task.cancel()
        return first.ready_at, await thread

    first, decision = asyncio.run(main())
    assert decision.ready_at == pytest.approx(first + 0.5, abs=2e-6)


FORKING = """
import os, sys, threading, time
from asgi_ratelimit import MemoryStore, TokenBucket, pace
from asgi_ratelimit.waiting import waiters_of

store = MemoryStore()

@pace("2/s", store=store)
def call(text):
    os.write(1, text)

call(b"parent 1\\n")
waiting = threading.Thread(target=call, args=(b"parent 2\\n",))
waiting.start()
while not waiters_of(store).slots:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    assert not waiters_of(store).slots
    call(b"child\\n")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
waiting.join()
"""


def test_a_forked_child_has_none_of_the_callers_that_waited() -> None:
    """They are threads and tasks of its parent; their slots stay booked."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split("\n")[:-1]) == ["child", "parent 1", "parent 2"]
