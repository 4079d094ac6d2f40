"""Slots that impatient callers cancel: how many calls complete if more come than the quota allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

import pytest

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

EVERY = 0.05
MAX_WAIT = 3.0

Event: TypeAlias = Callable[[], Awaitable[None]]

QUOTAS = pytest.mark.parametrize(
    ("quota", "seconds"),
    [
        (TokenBucket(10, burst=1), 30),
        (TokenBucket(10, burst=5, burst_allowance_factor=0.5), 30),
        (FixedWindow(10, 1), 30),
        (RollingWindow(300, 30, buckets=30), 93),  # 300 pass in the first half of each 31 seconds
    ],
    ids=["even", "bucket", "fixed", "rolling"],
)


class Crowd:
    """Twenty callers a second, each of which books a slot and leaves if it has not come after three seconds."""

    def __init__(self, quota: Quota, store: Store, clock: SteppedClock, *, cancels: bool) -> None:
        self.limiter, self.clock, self.start = Limiter(quota, store=store), clock, clock.now
        self.cancels = cancels
        self.completed = 0
        self._order = count()
        self._events: list[tuple[float, int, Event]] = []

    async def run(self, seconds: int) -> float:
        """Calls that completed in each second, on average."""
        for number in range(round(seconds / EVERY)):
            self._at(self.start + number * EVERY, self.arrive)
        while self._events:
            at, _, happens = heappop(self._events)
            if at < self.start + seconds:
                self.clock.move_to(at)
                await happens()
        return self.completed / seconds

    def _at(self, at: float, happens: Event) -> None:
        heappush(self._events, (at, next(self._order), happens))

    async def arrive(self) -> None:
        """Book a slot, and leave after three seconds if it has not come."""
        decision = await self.limiter.pace("key")
        if decision.delay <= MAX_WAIT:
            self._at(decision.ready_at, self.complete)
        elif self.cancels:
            self._at(self.clock.now + MAX_WAIT, lambda: self.limiter.cancel(decision))

    async def complete(self) -> None:
        """The slot has come, and the caller uses it."""
        self.completed += 1


@QUOTAS
async def test_slots_of_impatient_callers_go_to_others(
    store: Store, clock: SteppedClock, quota: Quota, seconds: int
) -> None:
    """Half of twenty callers a second leave, and their slots come free: ten calls a second still complete."""
    assert 9.5 <= await Crowd(quota, store, clock, cancels=True).run(seconds) <= 10.5


@QUOTAS
async def test_slots_that_are_not_cancelled_are_lost(
    store: Store, clock: SteppedClock, quota: Quota, seconds: int
) -> None:
    """The same callers without cancelling, to show that the test above can fail."""
    assert await Crowd(quota, store, clock, cancels=False).run(seconds) < 4
