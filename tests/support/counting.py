"""A store for tests that count takes and settlements."""

from __future__ import annotations

from collections.abc import Sequence

from asgi_ratelimit import Decision, MemoryStore, Take
from asgi_ratelimit.stores import Settled, Settlement


class CountingStore(MemoryStore):
    """A memory store that counts its takes and settlements."""

    takes = settled = 0

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        self.takes += len(takes)
        return await super().take(takes)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.settled += len(settlements)
        return await super().settle(settlements)
