"""A margin, which leaves a part of the limit unused: calls that are late catch up within it."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async
from asgi_ratelimit.waiting.waiter import SlotWaiter

TAKE = Take((Charge(TokenBucket(10, burst=1), "key"),), float("inf"))


class Process:
    """The callers of one process, and when their calls leave."""

    def __init__(self, store: Store, margin: float = 0.0) -> None:
        self.waiter = SlotWaiter(store, margin=margin)
        self.left: list[float] = []
        self.late: list[float] = []

    async def call(self, after: float = 0.0, take: Take = TAKE) -> None:
        """Come after some seconds, and leave at a slot."""
        await asyncio.sleep(after)
        decision = await run_async(self.waiter.wait(take))
        self.left.append(self.waiter.now_us() / 1e6)
        self.late.append(self.left[-1] - decision.ready_at)


def test_the_margin_serves_to_catch_up() -> None:
    """A call that is 8 ms late delays those behind it, each by 2 ms less: slots are 20 ms apart, calls at least 18."""
    clock = SteppedClock(0)
    process = Process(MemoryStore(clock=clock), margin=0.1)
    take = Take((Charge(TokenBucket(50, burst=1), "key"),), float("inf"))

    async def main() -> None:
        calls = [asyncio.ensure_future(process.call(take=take)) for _ in range(8)]
        await asyncio.sleep(0.019)
        clock.advance(0.009)
        await asyncio.gather(*calls)

    clock.run(main())
    assert process.left == pytest.approx([0.0, 0.028, 0.046, 0.064, 0.082, 0.1, 0.12, 0.14])
