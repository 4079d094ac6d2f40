"""Stores that answer late, for tests of what happens between a decision and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from asgi_ratelimit import Decision, MemoryStore, Take
from tests.support.store_elsewhere import StoreElsewhere


class SlowStore(MemoryStore):
    """It decides at once, and answers a tenth of a second later, as a store elsewhere does."""

    in_process = False

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        decisions = await super().take(takes)
        await asyncio.sleep(0.1)
        return decisions


class LateAnswers(StoreElsewhere):
    """It decides at once, and answers as many seconds later as ``late`` says for the time in seconds."""

    def __init__(self, store: MemoryStore, late: Callable[[float], float]) -> None:
        super().__init__(store, 0.0)
        self._late = late

    async def take(self, takes: Sequence[Take]) -> Any:
        return await self._late_answer(self._store.take(takes))

    async def peek(self, take: Take) -> Any:
        return await self._late_answer(self._store.peek(take))

    async def _late_answer(self, call: Any) -> Any:
        answer = await call
        await asyncio.sleep(self._late(self.clock.now_us() / 1e6))
        return answer
