"""Stores for tests of operations that several callers take: of other processes, and one that notes what goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from asgi_ratelimit.clock import Clock
from asgi_ratelimit.decision import Charge, Settled, Settlement, Take
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.stores.base import Decisions, Documents
from asgi_ratelimit.testing import SteppedClock


class NotingStore(MemoryStore):
    """It notes the ids of all decisions that have charged anything, and of those that were given back.

    The charges of a decision may be given back one by one, but each of them only once.
    """

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock=clock)
        self.charged: list[int] = []
        self.given_back: list[int] = []
        self.given_back_charges: list[tuple[int, str]] = []

    def take(self, takes: Sequence[Take]) -> Decisions:
        """One decision for each take."""
        decisions = super().take(takes)
        self.charged += [decision.id for decision in decisions if decision.allowed and not decision.repeated]
        return decisions

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle, once for each id."""
        for each in settlements:
            if not each.actual:
                if each.id not in self.given_back:
                    self.given_back.append(each.id)
                self.given_back_charges.append((each.id, each.charge.bucket))
        return await super().settle(settlements)


class ProcessStore(Store):
    """The store as one of several processes has it: each call takes some seconds there, and as many back."""

    in_process = False

    def __init__(self, shared: MemoryStore, latency: float = 0.0) -> None:
        self._shared = shared
        self._latency = latency

    @property
    def clock(self) -> Clock:
        """The clock of all of them."""
        return self._shared.clock

    @property
    def documents(self) -> Documents:
        """The documents of all of them."""
        return self._shared.documents

    async def _late(self, method: Any, argument: Any) -> Any:
        await asyncio.sleep(self._latency)
        answer = await method(argument)
        await asyncio.sleep(self._latency)
        return answer

    async def take(self, takes: Sequence[Take]) -> Any:
        """One decision for each take."""
        return await self._late(self._shared.take, takes)

    async def peek(self, take: Take) -> Any:
        """The decision that a take would get."""
        return await self._late(self._shared.peek, take)

    async def settle(self, settlements: Sequence[Settlement]) -> Any:
        """Settle what was taken."""
        return await self._late(self._shared.settle, settlements)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget buckets."""
        await self._shared.reset(charges)

    async def aclose(self) -> None:
        """The shared store stays open."""
