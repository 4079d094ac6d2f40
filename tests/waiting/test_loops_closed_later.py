"""Event loops that are closed while callers of other loops, and threads, already wait behind theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, SyncLimiter, TokenBucket, pace
from asgi_ratelimit.decision import Charge
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import ConcurrencyLimit, run_async, run_sync
from asgi_ratelimit.waiting.queue_registry import waiters_of
from tests.support.closed_loops import LONG, Call, Loop, in_thread, until
from tests.support.late_stores import SlowStore

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("unpublished"),  # a loop that is closed in the iteration that publishes never begins it
]


@pytest.fixture
def closing() -> Iterator[Loop]:
    """The event loop that is closed."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def other() -> Iterator[Loop]:
    """An event loop that goes on."""
    loop = Loop()
    yield loop
    loop.loop.close()


def acquiring(store: MemoryStore, max_delay: float | None) -> Call:
    """Calls that acquire."""
    limiter = Limiter("20/s burst 1", store=store)
    return lambda: limiter.acquire("key", max_delay=max_delay)


def spending(store: MemoryStore, max_delay: float | None) -> Call:
    """Calls that enter a block of ``spend``."""
    limiter = Limiter("20/s burst 1", store=store)

    async def call() -> None:
        async with limiter.spend("key", 1, max_delay=max_delay):
            pass

    return call


def with_own_and_shared_key(store: MemoryStore, max_delay: float | None) -> Call:
    """Calls with a key of their own and a shared one."""
    limiter = Limiter([TokenBucket(20, burst=1, name="own"), TokenBucket(100, name="all")], store=store)
    return lambda: limiter.acquire({"own": "key", "all": ""}, max_delay=max_delay)


def under_concurrency(store: MemoryStore, max_delay: float | None) -> Call:
    """Requests under ``concurrency``, the first of which never has its answer."""
    answers = iter([False])

    async def answer(_: httpx.Request) -> httpx.Response:
        if next(answers, None) is not None:
            await asyncio.get_running_loop().create_future()
        return httpx.Response(200)

    transport = PacedTransport(
        httpx.MockTransport(answer), "20/s burst 1", store=store, concurrency=1, max_delay=max_delay
    )
    return lambda: transport.handle_async_request(httpx.Request("GET", "https://api.test/"))


@pytest.mark.parametrize("max_delay", [None, 3600.0])
@pytest.mark.parametrize("calls", [acquiring, spending, with_own_and_shared_key, under_concurrency])
def test_tasks_that_already_wait_go_on(
    closing: Loop, other: Loop, calls: Callable[[MemoryStore, float | None], Call], max_delay: float | None
) -> None:
    """No new caller comes: those of the other loop take the places of the others within a second."""
    call = calls(MemoryStore(), max_delay)
    closing.begin(call, 4)
    other.begin(call, 2)
    closing.close()
    assert other.finishes()


def test_a_task_that_already_waits_has_an_end(closing: Loop, other: Loop) -> None:
    """Its ``max_delay`` is over before the next look, so it gets a ``PaceTimeout``, or its slot."""
    call = acquiring(MemoryStore(), 0.25)
    closing.begin(call, 4)
    other.begin(call)
    closing.close()
    assert other.finishes()


def test_a_thread_that_already_waits_for_a_slot_goes_on(closing: Loop) -> None:
    """The first of its queue is on the loop that is closed."""
    store, went = MemoryStore(), []

    @pace("20/s", name="paced", store=store)
    async def call() -> None: ...

    @pace("20/s", name="paced", store=store)
    def call_in_thread() -> None:
        went.append(True)

    closing.begin(call, 3)
    thread = in_thread(call_in_thread)
    asyncio.run(until(lambda: waiters_of(store).slots.counts()["paced"] == 3))
    closing.close()
    thread.join(LONG)
    assert went == [True]


def test_a_thread_that_already_waits_to_spend_goes_on(closing: Loop) -> None:
    """The active one is on the loop that is closed."""
    store, went = MemoryStore(), []
    limiter = SyncLimiter("20/s burst 1", store=store)

    def call_in_thread() -> None:
        with limiter.spend("key", 1):
            went.append(True)

    closing.begin(spending(store, None), 3)
    buckets = frozenset([Charge(TokenBucket(20, burst=1), "key").bucket])
    thread = in_thread(call_in_thread)
    asyncio.run(until(lambda: waiters_of(store).spenders.ahead(buckets) == 3))
    closing.close()
    thread.join(LONG)
    assert went == [True]


def test_a_thread_behind_a_waiting_task_that_became_active(closing: Loop) -> None:
    """The loop is closed when its task is no longer in the queue."""
    limit, went = ConcurrencyLimit(), []
    held = limit.enter("key")
    assert held is not None
    closing.begin(lambda: run_async(limit.wait_and_enter("key", None, inf)))
    thread = in_thread(lambda: went.append(run_sync(limit.wait_and_enter("key", None, inf))))
    asyncio.run(until(lambda: limit.ahead("key") == 3))
    limit.leave(held)
    closing.close()
    thread.join(LONG)
    assert [place is not None for place in went] == [True]


def test_the_slots_that_nobody_uses_are_given_back(closing: Loop, other: Loop) -> None:
    """The caller that is left uses the first one, so nothing else stays booked."""
    limiter = Limiter("1/hour", store=MemoryStore())

    async def until_booked(number: int) -> None:
        async with asyncio.timeout(LONG):
            while round(await limiter.waiting("key")) != number:  # noqa: ASYNC110  # another thread gives them back
                await asyncio.sleep(0.001)

    closing.begin(lambda: limiter.acquire("key"), 4)
    other.begin(lambda: limiter.acquire("key"))
    asyncio.run(until_booked(4))
    closing.close()
    asyncio.run(until_booked(1))
    other.tasks[0].cancel()
    other.loop.run_until_complete(asyncio.wait(other.tasks))
    asyncio.run(until_booked(0))


def test_slots_that_were_missed_meanwhile_are_not_kept() -> None:
    """The caller that is left uses the first of those that it has not missed, which is in time for it."""
    clock = SteppedClock(0)
    store = MemoryStore(clock=clock)
    limiter = Limiter("10/s burst 1", store=store)
    closing, other = Loop(clock.event_loop()), Loop(clock.event_loop())
    closing.begin(lambda: limiter.acquire("key"), 10)
    other.begin(lambda: limiter.acquire("key", max_delay=1.05))
    closing.close()
    clock.advance(0.75)
    waiters_of(store).slots.drop_dead()
    other.loop.run_until_complete(other.tasks[0])
    other.loop.close()
    assert clock.now == 0.75


def test_a_booking_that_nobody_answers_hides_no_error() -> None:
    """A store fails for a caller behind one of a closed loop, whose take was under way."""

    class Failing(MemoryStore):
        in_process = False
        answers = False

        async def take(self, _takes: Any) -> Any:
            if not self.answers:
                await asyncio.get_running_loop().create_future()
            raise StoreError("it is out")

    store = Failing()
    limiter, closing = Limiter("1/hour", store=store), Loop()
    closing.begin(lambda: limiter.acquire("key"))
    closing.close()
    store.answers = True
    with pytest.raises(StoreError, match="it is out"):
        asyncio.run(asyncio.wait_for(limiter.acquire("key"), LONG))


def test_a_slot_that_nobody_books_anew_hides_no_error() -> None:
    """A store fails for a caller behind one of a closed loop, which had missed its slot and was booking another one."""

    class Failing(SlowStore):
        answers, stalled = True, False

        async def take(self, takes: Any) -> Any:
            if not self.answers and not self.stalled:
                self.stalled = True
                await asyncio.get_running_loop().create_future()
            if self.stalled:
                raise StoreError("it is out")
            return await MemoryStore.take(self, takes)

    clock = SteppedClock(0)
    store = Failing(clock=clock)
    limiter, closing = Limiter("10/s burst 1", store=store), Loop(clock.event_loop())
    closing.begin(lambda: limiter.acquire("key"))
    closing.begin(lambda: limiter.acquire("key"))
    store.answers = False
    clock.advance(10.0)
    closing.loop.run_until_complete(until(lambda: store.stalled))
    closing.close()
    with pytest.raises(StoreError, match="it is out"):
        asyncio.run(asyncio.wait_for(limiter.acquire("key"), LONG))


def test_nobody_looks_when_all_callers_are_of_one_loop(closing: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor when all are threads."""
    watched: list[object] = []
    monkeypatch.setattr("asgi_ratelimit.waiting.background_loop.watch", watched.append)
    store = MemoryStore()
    for calls in (acquiring, spending, with_own_and_shared_key, under_concurrency):
        closing.begin(calls(store, None), 4)
    limiter = SyncLimiter("20/s burst 1", store=MemoryStore())
    threads = [in_thread(lambda: limiter.acquire("key")) for _ in range(3)]
    for thread in threads:
        thread.join(LONG)
    assert watched == []
