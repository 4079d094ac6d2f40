"""A store as another process has it: another object over the same buckets, which owns its names by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asgi_ratelimit.decision import Charge, Decision, Settled, Settlement, Take
from asgi_ratelimit.stores import Store


class OtherProcess:
    """A store that passes everything on to another one, of whose names it knows nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.in_process = store.in_process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        return await self._store.take(takes)

    async def peek(self, take: Take) -> Decision:
        return await self._store.peek(take)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._store.settle(settlements)

    async def reset(self, charges: Sequence[Charge]) -> None:
        await self._store.reset(charges)

    async def aclose(self) -> None:
        await self._store.aclose()
