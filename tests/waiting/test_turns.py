"""Who goes next: crowds, priorities, and callers that are cancelled while they book."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, PaceTimeout, TokenBucket, pace
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async
from asgi_ratelimit.waiting.waiter import SlotWaiter, waiters_of
from tests.support.late_stores import SlowStore

INF = float("inf")
EVEN = TokenBucket(10, burst=1)
TAKE = Take((Charge(EVEN, "key"),), INF)


async def in_order(waiter: SlotWaiter, priorities: Sequence[float]) -> list[float]:
    """The priorities of callers that come at once, in the order in which they leave."""
    left: list[float] = []

    async def call(priority: float) -> None:
        await run_async(waiter.wait(TAKE, priority))
        left.append(priority)

    await asyncio.gather(*map(call, priorities))
    return left


@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
def test_callers_of_a_higher_priority_go_first(kind: type[MemoryStore]) -> None:
    """But not before one that has been woken: with a store in this process, the first leaves at once."""
    clock = SteppedClock(0)
    left = clock.run(in_order(SlotWaiter(kind(clock=clock)), [0.0, 1.0, -1.0, 0.5, 2.0, 1.5]))
    assert left == ([0.0, 2.0, 1.5, 1.0, 0.5, -1.0] if kind is MemoryStore else [2.0, 1.5, 1.0, 0.5, 0.0, -1.0])


@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
def test_a_caller_that_is_overtaken_waits_no_longer_than_max_delay(kind: type[MemoryStore]) -> None:
    """Then it raises, and its slot goes to those behind it: also to one that came later and may wait for longer."""
    clock = SteppedClock(0)
    store = kind(clock=clock)
    waited = dict[str, float]()

    @pace("10/s", store=store, name="api", max_delay=1.0, priority=lambda priority: priority)
    async def call(name: str, priority: float) -> None:
        waited[name] = clock.now

    patient = pace("10/s", store=store, name="api", priority=lambda priority: priority)(call.__wrapped__)  # type: ignore[attr-defined]

    async def main() -> list[Any]:
        low = [asyncio.ensure_future(call(f"low {number}", 0)) for number in range(8)]
        await asyncio.sleep(0.05)
        low.append(asyncio.ensure_future(patient("patient", 0)))
        times = []
        for each in low:
            each.add_done_callback(lambda _: times.append(clock.now))
        high = []
        for number in range(20):
            high.append(asyncio.ensure_future(call(f"high {number}", 1)))
            await asyncio.sleep(0.1)
        ended = await asyncio.gather(*low, *high, return_exceptions=True)
        assert not waiters_of(store).slots
        return [ended, times]

    ended, times = clock.run(main())
    timeouts = [each for each in ended if each is not None]
    assert {type(each) for each in timeouts} == {PaceTimeout}
    assert len(timeouts) >= 6
    assert all(" max_delay is 1 s" in str(each) and each.decision.retry_after > 0.0 for each in timeouts)
    assert [time for time in times if time > 1.1] == [waited["patient"]]
    assert max(waited.values()) < 2.4
    went = sorted(waited.values())
    assert all(later - earlier == pytest.approx(0.1) for earlier, later in pairwise(went))


@pytest.mark.parametrize(
    "priority",
    [float("nan"), float("inf"), True, "high", None, 10**400, -(10**400)],
    ids=["nan", "inf", "bool", "text", "none", "above all floats", "below all floats"],
)
def test_a_priority_is_a_finite_number(priority: Any) -> None:
    """Anything else is refused when the function is decorated, or when it is called."""
    with pytest.raises(ConfigurationError, match="priority must be a finite number"):
        pace("10/s", priority=priority)
    with pytest.raises(ConfigurationError, match="priority must be a finite number"):
        pace("10/s", priority=lambda: priority)(lambda: None)()


@pytest.mark.parametrize("cancelled", [0, 1, 3])
def test_nobody_stands_behind_a_caller_that_is_cancelled_while_it_books(cancelled: int) -> None:
    """Callers of two batches: the slot that comes for it goes to those behind it, and the newest one is given back."""
    clock = SteppedClock(0)
    store = SlowStore(clock=clock)
    waiter = SlotWaiter(store)

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(run_async(waiter.wait(TAKE))) for _ in range(4)]
        await asyncio.sleep(0.05)
        calls += [asyncio.ensure_future(run_async(waiter.wait(TAKE))) for _ in range(2)]
        await asyncio.sleep(0.01)
        calls[cancelled].cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.2)
        assert await Limiter(EVEN, store=store).waiting("key") == 0
        return ended

    ended = clock.run(main())
    assert [at.ready_at for at in ended if isinstance(at, Decision)] == pytest.approx(
        [number / 10 for number in range(5)]
    )
    assert not waiters_of(store).slots


@pytest.mark.usefixtures("unpublished")  # a loop that is closed in the iteration that publishes never begins it
def test_callers_of_a_closed_event_loop_hold_nobody_up() -> None:
    """A loop is closed while callers wait on it, and they are still referred to: those of another loop go on."""

    @pace("20/s")
    async def call(number: int) -> int:
        return number

    loop = asyncio.new_event_loop()
    waiting = [loop.create_task(call(number)) for number in range(3)]
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()

    async def main() -> list[int]:
        async with asyncio.timeout(60):
            return await asyncio.gather(*map(call, range(3)))

    assert asyncio.run(main()) == [0, 1, 2]
    for task in waiting:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is on purpose
