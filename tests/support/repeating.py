"""Stores for tests of operations that several callers take: of other processes, and one that notes what goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock


class NotingStore(MemoryStore):
    """It notes the births of all decisions that have charged anything, and of those that were given back.

    The charges of a decision may be given back one by one, but each of them only once.
    """

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock=clock)
        self.charged: list[float] = []
        self.given_back: list[float] = []
        self.given_back_charges: list[tuple[float, str]] = []

    def submit(self, take: Take) -> Decision:
        """The decision of one take."""
        decision = super().submit(take)
        if decision.allowed and decision.repeated_us is None:
            self.charged.append(float(decision.birth))
        return decision

    async def settle(self, settlement: Settlement) -> None:
        """Settle, once for each id."""
        if not any(each.actual for each in settlement.settled_charges):
            self.given_back.append(settlement.id)
            self.given_back_charges += [(settlement.id, each.charge.bucket) for each in settlement.settled_charges]
        await super().settle(settlement)


class ProcessStore:
    """The store as one of several processes has it: each call takes some seconds there, and as many back."""

    in_process = False
    remembers_operations = True

    def __init__(self, shared: MemoryStore, latency: float = 0.0) -> None:
        self.clock = shared.clock
        self.documents = None
        self._shared = shared
        self._latency = latency

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take."""
        await asyncio.sleep(self._latency)
        decisions = await self._shared.take(takes)
        await asyncio.sleep(self._latency)
        return decisions

    async def peek(self, take: Take) -> Decision:
        """The decision that a take would get."""
        await asyncio.sleep(self._latency)
        decision = await self._shared.peek(take)
        await asyncio.sleep(self._latency)
        return decision

    async def settle(self, settlement: Settlement) -> None:
        """Settle what was taken."""
        await asyncio.sleep(self._latency)
        await self._shared.settle(settlement)
        await asyncio.sleep(self._latency)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget buckets."""
        await self._shared.reset(charges)

    async def aclose(self) -> None:
        """The shared store stays open."""


class Overtaken(ProcessStore):
    """It answers each take so many seconds later, and the later ones at once."""

    def __init__(self, shared: MemoryStore, *answers: float) -> None:
        super().__init__(shared)
        self._answers = iter(answers)

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take."""
        decisions = await self._shared.take(takes)
        await asyncio.sleep(next(self._answers, 0.0))
        return decisions
