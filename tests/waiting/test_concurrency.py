"""Callers that wait for others, and are cancelled, or on a loop that is closed: for a place, or for units."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asgi_ratelimit import Limiter, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async, run_sync
from asgi_ratelimit.waiting.queues import ConcurrencyLimit


@pytest.mark.parametrize("moment", [0.5, 1.0], ids=["waiting", "woken"])
def test_a_cancelled_caller_lets_the_next_one_go(moment: float) -> None:
    """Both while it waits, and at the moment when it could go."""
    clock, limit, began = SteppedClock(0), ConcurrencyLimit(1), list[tuple[str, float]]()

    async def work(name: str) -> None:
        place = await run_async(limit.wait_and_enter("key", clock, float("inf")))
        began.append((name, clock.now))
        await asyncio.sleep(1)
        assert place is not None
        limit.leave(place)

    async def main() -> None:
        first, cancelled, last = [asyncio.ensure_future(work(name)) for name in "abc"]
        await asyncio.sleep(moment)
        cancelled.cancel()
        await asyncio.gather(first, cancelled, last, return_exceptions=True)

    clock.run(main())
    assert (began, len(limit)) == ([("a", 0.0), ("c", 1.0)], 0)


@pytest.mark.parametrize("is_woken", [None, False, True], ids=["active", "waiting", "woken"])
def test_a_caller_on_a_closed_event_loop_holds_nobody_up(*, is_woken: bool | None) -> None:
    """Although it is still referred to; leaving later, it takes no place from others."""
    limit = ConcurrencyLimit(1)
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        left.append(await run_async(limit.wait_and_enter("key", None, float("inf"))))

    left: list[Any] = []
    first = run_sync(limit.wait_and_enter("key", None, float("inf")))
    assert first is not None
    ends = [lambda: limit.leave(first), loop.close]
    if is_woken is None:
        ends.pop(0)()
    held = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0.001))
    for end in ends[:: 1 if is_woken else -1]:
        end()
    assert run_sync(limit.wait_and_enter("key", SteppedClock(0), 1e6)) is not None
    for place in left:
        limit.leave(place)
    assert run_sync(limit.wait_and_enter("key", SteppedClock(0), 1e6)) is None
    held._log_destroy_pending = False  # type: ignore[attr-defined]  # it is on purpose


def test_units_come_back_although_their_waiter_is_on_a_closed_event_loop() -> None:
    """Whoever gives them back hears nothing of that loop."""
    limiter, loop = Limiter("1/hour", store=MemoryStore()), asyncio.new_event_loop()
    taken = loop.run_until_complete(limiter.rate_limit("key"))

    async def spend() -> None:
        async with limiter.spend("key", 1):
            pass

    held = loop.create_task(spend())
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    asyncio.run(limiter.refund(taken))
    assert asyncio.run(limiter.peek("key")).allowed
    held._log_destroy_pending = False  # type: ignore[attr-defined]  # it is on purpose
