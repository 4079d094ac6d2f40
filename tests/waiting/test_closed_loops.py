"""Event loops that are closed while callers wait on them: those callers hold nobody up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import ConcurrencyLimit, run_async, run_sync

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("unpublished"),  # a loop that is closed in the iteration that publishes never begins it
]

Call = Callable[[], Coroutine[Any, Any, object]]


def leave_waiting(call: Call, number: int = 3) -> list[asyncio.Task[Any]]:
    """Make calls on an event loop, and close it while they wait; returns their tasks, which refer to them."""
    loop = asyncio.new_event_loop()

    async def begin() -> list[asyncio.Task[Any]]:
        tasks = [loop.create_task(call()) for _ in range(number)]
        for _ in range(20):
            await asyncio.sleep(0)
        return tasks

    tasks = loop.run_until_complete(begin())
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return tasks


def finishes(call: Call) -> bool:
    """Whether a call on another event loop ends, long before a hung one would."""

    async def main() -> bool:
        try:
            await asyncio.wait_for(call(), 10)
        except TimeoutError:
            return False
        return True

    return asyncio.run(main())


def spending(limiter: Limiter, max_delay: float | None = None) -> Call:
    """Calls that enter a block of ``spend``."""

    async def call() -> None:
        async with limiter.spend("key", 1, max_delay=max_delay):
            pass

    return call


@pytest.mark.parametrize("referred_to", [True, False])
@pytest.mark.parametrize("max_delay", [None, 3600.0 * 4])
def test_callers_of_spend_hold_nobody_up(referred_to: bool, max_delay: float | None) -> None:
    """The active one is on a closed loop, so the next caller that comes takes its place; and so does the one after."""
    limiter = Limiter("1/hour", store=MemoryStore())
    tasks = leave_waiting(spending(limiter, max_delay))
    if not referred_to:
        tasks.clear()
        gc.collect()
    for _ in range(2):
        asyncio.run(limiter.reset("key"))
        assert finishes(spending(limiter, max_delay))


def test_callers_with_an_own_and_a_shared_key_hold_nobody_up() -> None:
    """The first of the own key is on a closed loop."""
    limiter = Limiter([TokenBucket(1, 3600, name="own"), TokenBucket(100, name="all")], store=MemoryStore())

    async def call() -> None:
        await limiter.acquire({"own": "key", "all": ""})

    tasks = leave_waiting(call)
    asyncio.run(limiter.reset({"own": "key", "all": ""}))
    assert finishes(call)
    assert not tasks[-1].done()


@pytest.mark.parametrize("name", ["concurrency", "settle"])
def test_requests_of_a_transport_hold_nobody_up(name: str) -> None:
    """Neither those that have the permits, nor those that wait to spend."""
    hangs = True

    async def answer(_: httpx.Request) -> httpx.Response:
        if hangs:
            await asyncio.get_running_loop().create_future()
        return httpx.Response(200)

    options: dict[str, Any] = {"concurrency": 2} if name == "concurrency" else {"settle": lambda _: 1}
    store = MemoryStore()
    transport = PacedTransport(httpx.MockTransport(answer), "2/hour burst 2", store=store, name="api", **options)

    async def call() -> None:
        response = await transport.handle_async_request(httpx.Request("GET", "https://api.test/"))
        await response.aclose()

    tasks = leave_waiting(call, 5)
    hangs = False
    asyncio.run(Limiter("2/hour burst 2", store=store, name="api").reset("api.test"))
    assert finishes(call)
    assert not tasks[-1].done()


def test_a_caller_of_another_loop_that_waited_goes_first() -> None:
    """It waits behind one on a loop that is closed: the next caller that comes lets it go, and waits behind it."""
    clock, limit, went = SteppedClock(0), ConcurrencyLimit(), []

    async def active() -> None:
        await run_async(limit.wait_and_enter("key", None, 1e6))
        await asyncio.get_running_loop().create_future()

    tasks = leave_waiting(active, 1)

    async def follow(name: str, priority: float) -> None:
        place = await run_async(limit.wait_and_enter("key", clock, 10e6, priority))
        went.append((name, clock.now, place is not None))
        await asyncio.sleep(1)
        assert place is not None
        limit.leave(place)

    async def main() -> None:
        await asyncio.gather(follow("a", 0.0), follow("b", 0.0), follow("urgent", 1.0))

    clock.run(main())
    assert went == [("a", 0.0, True), ("urgent", 1.0, True), ("b", 2.0, True)]
    assert (len(limit), len(tasks)) == (0, 1)


def test_a_dropped_caller_that_is_closed_afterwards_takes_no_place_of_another() -> None:
    """The garbage collector closes it while another caller is active, and a third one still waits."""
    limit = ConcurrencyLimit()

    async def active() -> None:
        place = await run_async(limit.wait_and_enter("key", None, 1e6))
        assert place is not None
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            limit.leave(place)

    tasks = leave_waiting(active, 3)
    held = limit.enter("key")
    assert held is not None
    tasks.clear()
    gc.collect()
    assert limit.enter("key") is None
    limit.leave(held)
    assert len(limit) == 0


def test_a_loop_that_is_only_stopped_keeps_its_places() -> None:
    """It may run again; when it is closed, the place is free, for a thread as well."""
    limit, loop = ConcurrencyLimit(), asyncio.new_event_loop()
    assert loop.run_until_complete(run_async(limit.wait_and_enter("key", None, 1e6))) is not None
    assert run_sync(limit.wait_and_enter("key", SteppedClock(0), 1e6)) is None
    loop.close()
    assert limit.ahead("key") == 0
    assert run_sync(limit.wait_and_enter("key", SteppedClock(0), 1e6)) is not None
