"""A store that behaves like one that processes share, over a memory store on a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from asgi_ratelimit import Decision, MemoryStore, Take


class StoreElsewhere:
    """One process's view of a memory store; each call takes ``latency`` seconds, half of them on the way there."""

    in_process = False

    def __init__(self, store: MemoryStore, latency: float = 0.001) -> None:
        self._store = store
        self._latency = latency
        self.clock = store.clock
        self.documents = _Elsewhere(store.documents, self._call)

    async def _call(self, call: Any) -> Any:
        await asyncio.sleep(self._latency / 2)
        answer = await call
        await asyncio.sleep(self._latency / 2)
        return answer

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take."""
        decisions: list[Decision] = await self._call(self._store.take(takes))
        return decisions

    def __getattr__(self, name: str) -> Any:
        """``peek``, ``settle``, ``reset`` and ``redeem``."""
        method = getattr(self._store, name)
        return lambda *arguments: self._call(method(*arguments))

    async def aclose(self) -> None:
        """The store stays open for the others."""


class _Elsewhere:
    def __init__(self, there: Any, call: Any) -> None:
        self._there = there
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._call(getattr(self._there, name)(*arguments, **options))
