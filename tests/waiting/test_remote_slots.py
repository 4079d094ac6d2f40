"""Waiting for a slot of a remote store: callers that are cancelled while it answers, and budgets that many share."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest

from asgi_ratelimit import Charge, Decision, FixedWindow, Limiter, Quota, RedisStore, Take, TokenBucket
from asgi_ratelimit.stores import MemoryStore, Settled, Settlement, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async
from asgi_ratelimit.waiting.waiter import SlotWaiter
from tests.support.children import run_together

INF = float("inf")
# The most seconds by which a call may be early.
EARLY = 0.005
EVEN = TokenBucket(10, burst=1)


def wait_for_slot(store: Store, quota: Quota = EVEN) -> Coroutine[Any, Any, Decision]:
    """Wait for a slot in a task."""
    return run_async(SlotWaiter(store).wait(Take((Charge(quota, "key"),), INF)))


class Distant(MemoryStore):
    """A store whose calls take ten milliseconds of the event loop's time each way, or longer on the way back."""

    in_process = False

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        await asyncio.sleep(0.01)
        decisions = await super().take(takes)
        await asyncio.sleep(0.02 - self.clock.now_us() / 1e6 % 0.01)  # answers come together, as those of a batch
        return decisions

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await asyncio.sleep(0.01)
        settled = await super().settle(settlements)
        await asyncio.sleep(0.01)
        return settled


def test_a_slot_of_a_window_that_is_over_when_its_answer_comes() -> None:
    """Its call leaves in a later window, which has no more calls for that."""
    clock, left = SteppedClock(0.985), list[int]()
    store = Distant(clock=clock)

    async def call() -> None:
        await wait_for_slot(store, FixedWindow(3, 1.0))
        left.append(int(clock.now))

    async def main() -> None:
        await asyncio.gather(*[call() for _ in range(6)])

    clock.run(main())
    assert sorted(left) == [1, 1, 1, 2, 2, 2]


OWN_AND_SHARED = Take((Charge(EVEN, "own"), Charge(EVEN, "key")), INF)


@pytest.mark.parametrize("take", [Take((Charge(EVEN, "key"),), INF), OWN_AND_SHARED], ids=["one key", "two keys"])
def test_a_caller_that_is_cancelled_while_it_books_ends_when_its_slot_is_back(take: Take) -> None:
    """So nothing stays booked if the event loop ends then; those who are cancelled do not come back later."""
    clock = SteppedClock(0)
    store = Distant(clock=clock)

    async def main() -> None:
        await run_async(SlotWaiter(store).wait(take))
        is_now = len(take.charges) > 1
        clock.advance(0.1 if is_now else 0.0)  # for two keys, nothing is booked ahead
        callers = [asyncio.ensure_future(run_async(SlotWaiter(store).wait(take))) for _ in range(3)]
        await asyncio.sleep(0.015)  # they are booked, and the answer is on its way
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert all(caller.cancelled() for caller in callers)
        assert await Limiter(EVEN, store=store).waiting("key") == 0
        assert (await Limiter(EVEN, store=store).peek("key")).allowed == is_now

    clock.run(main())


def test_closing_waits_for_the_slots_of_callers_that_are_gone() -> None:
    """They were cancelled twice while they booked, and so do not wait themselves; they are given back nevertheless."""
    clock = SteppedClock(0)
    store = Distant(clock=clock)

    async def main() -> None:
        async with Limiter(EVEN, store=store) as limiter:
            await limiter.acquire("key")
            callers = [asyncio.ensure_future(limiter.acquire("key")) for _ in range(3)]
            await asyncio.sleep(0.015)  # they are booked, and the answer is on its way
            for _ in range(2):
                for caller in callers:
                    caller.cancel()
                await asyncio.sleep(0.001)
            assert all(caller.cancelled() for caller in callers)
            assert await limiter.waiting("key") > 2
        assert await limiter.waiting("key") == 0
        await asyncio.sleep(1)
        assert await limiter.waiting("key") == 0

    clock.run(main())


def test_a_store_that_never_answers_does_not_hold_those_who_are_cancelled_for_long() -> None:
    """Nor those who close it."""
    clock = SteppedClock(0)

    class Silent(Distant):
        async def take(self, takes: Sequence[Take]) -> list[Decision]:  # noqa: ARG002  # as any store
            return await asyncio.get_running_loop().create_future()

    async def main() -> None:
        async with Limiter(EVEN, store=Silent(clock=clock)) as limiter:
            caller = asyncio.ensure_future(limiter.acquire("key"))
            await asyncio.sleep(0.005)
            caller.cancel()
            await asyncio.wait([caller])
            assert clock.now < 2

    clock.run(main())
    assert clock.now < 4


def test_a_caller_that_books_on_a_closed_event_loop_holds_nobody_up() -> None:
    """Its slot never comes. A caller of another loop that has missed its own books anew."""
    clock = SteppedClock(0)
    store, loop = Distant(clock=clock), clock.event_loop()
    held = loop.create_task(wait_for_slot(store))
    loop.run_until_complete(asyncio.sleep(0.005))
    loop.close()

    async def main() -> None:
        async with asyncio.timeout(60):
            await wait_for_slot(store)
            waiting = asyncio.ensure_future(wait_for_slot(store))
            await asyncio.sleep(0.05)
            clock.advance(5.0)
            await waiting

    clock.run(main())
    held._log_destroy_pending = False  # type: ignore[attr-defined]  # it is on purpose


# Over Redis, in real time

HOURLY = TokenBucket(1, 3600, burst=1)


async def until(store: Store, holds: Callable[[float], bool]) -> None:
    """Wait until the time in which the bucket is full again satisfies a condition."""
    async with asyncio.timeout(60):
        while not holds((await Limiter(HOURLY, store=store).peek("key")).reset_after):
            pass


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the store is not closed
@pytest.mark.parametrize(
    ("is_asleep", "is_awaited"),
    [(False, True), (True, False), (True, True)],
    ids=["booking", "asleep, dropped", "asleep"],
)
def test_callers_whose_event_loop_ends_leave_no_slot_booked(
    redis_url: str, caplog: pytest.LogCaptureFixture, *, is_asleep: bool, is_awaited: bool
) -> None:
    """Whether they book or sleep when they are cancelled, and if ``asyncio.run`` cancels those that sleep."""

    async def use() -> None:
        store = RedisStore(redis_url, timeout=30, on_error="deny")
        await wait_for_slot(store, HOURLY)
        callers = [asyncio.ensure_future(wait_for_slot(store, HOURLY)) for _ in range(5)]
        if is_asleep:
            await until(store, lambda seconds: seconds > 5 * 3600)
        for _ in range(3):
            await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        if is_awaited:
            await asyncio.wait(callers)

    async def waiting() -> float:
        async with Limiter(HOURLY, store=RedisStore(redis_url, timeout=30)) as limiter:
            return await limiter.waiting("key")

    asyncio.run(use())
    left = asyncio.run(waiting())
    gc.collect()
    assert left == 0
    assert not [record for record in caplog.records if record.name == "asyncio"]


CALLERS = """
import asyncio, sys, time
from threading import Thread
from asgi_ratelimit import Limiter, RedisStore, SyncLimiter

calls, store = [], RedisStore(sys.argv[1], timeout=30, on_error="deny")
waiting, blocking = Limiter("100/s burst 1", store=store), SyncLimiter("100/s burst 1", store=store)

async def task(kind):
    for _ in range(6):
        decision = await waiting.acquire("key")
        calls.append((kind, decision.ready_at, time.time()))

async def tasks(kind):
    await asyncio.gather(*[task(kind) for _ in range(3)])
    await store.aclose()

def thread():
    for _ in range(6):
        decision = blocking.acquire("key")
        calls.append(("thread", decision.ready_at, time.time()))

print("ready", flush=True)
sys.stdin.readline()
others = [Thread(target=thread) for _ in range(3)] + [Thread(target=lambda: asyncio.run(tasks("other_loop")))]
for other in others:
    other.start()
asyncio.run(tasks("task"))
for other in others:
    other.join()
blocking.close()
for call in calls:
    print(*call)
"""


def test_threads_loops_and_processes_share_a_budget(redis_url: str) -> None:
    """Each gets a share; no slot has two callers, no call is early, and the promise holds over all of them."""
    outputs = run_together([("-c", CALLERS, redis_url)] * 2, "begin", within=60)
    calls = [line.split() for output in outputs for line in output.splitlines()]
    slots = sorted(float(slot) for _, slot, _ in calls)
    assert len(slots) == 2 * 9 * 6
    assert all(later - earlier >= 0.01 - 1e-6 for earlier, later in pairwise(slots))
    assert all(float(left) >= float(slot) - EARLY for _, slot, left in calls)
