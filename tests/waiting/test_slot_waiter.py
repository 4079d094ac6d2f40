"""Waiting for a slot: which caller goes at which slot, when callers come, give up, stall and share."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, MemoryStore, Quota, Store, SyncLimiter, Take, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async, run_sync
from asgi_ratelimit.waiting.waiter import PaceTimeout, SlotWaiter, waiters_of
from tests.support.histories import Ledger
from tests.support.programs import outcome_of
from tests.support.strategies import quotas

INF = float("inf")
EVEN = TokenBucket(10, burst=1)


def wait_for_slot(store: Store, quota: Quota = EVEN, max_wait: float = INF, cost: float = 1) -> Any:
    """Wait for a slot in a task."""
    return run_async(SlotWaiter(store).wait(Take((Charge(quota, "key", cost),), max_wait)))


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


FORKING = """
    import os, sys, threading, time
    from asgi_ratelimit import MemoryStore, TokenBucket, pace
    from asgi_ratelimit.waiting.waiter import waiters_of

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
    code, printed, complaints = outcome_of(FORKING, "", "-W", "ignore::DeprecationWarning")  # of os.fork
    assert (code, complaints) == (0, "")
    assert sorted(printed.splitlines()) == ["child", "parent 1", "parent 2"]
