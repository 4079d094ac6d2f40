"""A store for tests that count takes."""

from __future__ import annotations

from collections.abc import Sequence

from asgi_ratelimit import Decision, MemoryStore, Take


class CountingStore(MemoryStore):
    """A memory store that counts its takes."""

    takes = 0

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        self.takes += len(takes)
        return await super().take(takes)
