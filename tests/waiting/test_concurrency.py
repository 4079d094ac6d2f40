"""Callers that wait for each other: how many of a key are active, who goes next, and who may give units back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asgi_ratelimit import Limiter, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async, run_sync
from asgi_ratelimit.waiting.queues import ConcurrencyLimit


class Workers:
    """Workers that are active for some seconds each, and when each of them began."""

    def __init__(self, limit: int) -> None:
        self.clock = SteppedClock(0)
        self.limit = ConcurrencyLimit(limit)
        self.began: list[tuple[str, float]] = []

    async def work(self, name: str, seconds: float, *, key: str = "key", deadline: float = float("inf")) -> bool:
        """Wait, work, leave; ``False`` if the deadline came first."""
        place = await run_async(self.limit.wait_and_enter(key, self.clock, deadline * 1e6))
        if place is None:
            return False
        try:
            self.began.append((name, self.clock.now))
            await asyncio.sleep(seconds)
        finally:
            self.limit.leave(place)
        return True


@pytest.mark.parametrize("moment", [0.5, 1.0], ids=["waiting", "woken"])
def test_a_cancelled_caller_lets_the_next_one_go(moment: float) -> None:
    """Both while it waits, and at the moment when it could go."""
    workers = Workers(1)

    async def main() -> None:
        first, cancelled, last = [asyncio.ensure_future(workers.work(name, 1)) for name in ("a", "b", "c")]
        await asyncio.sleep(moment)
        cancelled.cancel()
        await asyncio.gather(first, cancelled, last, return_exceptions=True)

    workers.clock.run(main())
    assert workers.began == [("a", 0.0), ("c", 1.0)]
    assert len(workers.limit) == 0


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
