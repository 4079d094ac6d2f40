"""Stores that answer late, for tests of what happens between a decision and its answer, and among processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from asgi_ratelimit.clock import Clock
from asgi_ratelimit.decision import Charge, Decision, Settled, Settlement, Take
from asgi_ratelimit.stores import MemoryStore


class SlowStore(MemoryStore):
    """It decides at once, and answers a tenth of a second later, as a store elsewhere does."""

    in_process = False

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        decisions = await super().take(takes)
        await asyncio.sleep(0.1)
        return decisions


class StoreOfProcess:
    """The store as one of several processes has it: all share the buckets, and no process sees the others' callers."""

    in_process = False

    def __init__(self, shared: MemoryStore) -> None:
        self._shared = shared

    @property
    def clock(self) -> Clock:
        return self._shared.clock

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        decisions = await self._shared.take(takes)
        await asyncio.sleep(0.001)
        return decisions

    async def peek(self, take: Take) -> Decision:
        return await self._shared.peek(take)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._shared.settle(settlements)

    async def reset(self, charges: Sequence[Charge]) -> None:
        await self._shared.reset(charges)

    async def aclose(self) -> None:
        await self._shared.aclose()


class LateAnswers(StoreOfProcess):
    """It decides at once, and answers as many seconds later as ``late`` says for the time in seconds."""

    def __init__(self, shared: MemoryStore, late: Callable[[float], float]) -> None:
        super().__init__(shared)
        self._late = late

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        decisions = await self._shared.take(takes)
        await asyncio.sleep(self._late(self.clock.now_us() / 1e6))
        return decisions

    async def peek(self, take: Take) -> Decision:
        decision = await self._shared.peek(take)
        await asyncio.sleep(self._late(self.clock.now_us() / 1e6))
        return decision
