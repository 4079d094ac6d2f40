"""A store that behaves like one that processes share, over any other store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from asgi_ratelimit import Decision, Take


class StoreElsewhere:
    """One process's view of a store. Each call takes ``latency`` seconds, half of them on the way there."""

    in_process = False

    def __init__(self, store: Any, latency: float = 0.001) -> None:
        self._store = store
        self._latency = latency
        self.clock = store.clock
        self.documents = _Elsewhere(store.documents, latency)

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take."""
        decisions: list[Decision] = await _travelling(self._latency, self._store.take, takes)
        return decisions

    def __getattr__(self, name: str) -> Any:
        """``peek``, ``settle`` and ``reset``, and what is there at once."""
        member = getattr(self._store, name)
        if not iscoroutinefunction(member):
            return member
        return partial(_travelling, self._latency, member)

    async def aclose(self) -> None:
        """The store stays open for the others."""


class _Elsewhere:
    """The documents of the store, which they do not keep alive: its counts would go on for the rest of the run."""

    def __init__(self, there: Any, latency: float) -> None:
        self._there = there
        self._latency = latency

    def __getattr__(self, name: str) -> Any:
        return partial(_travelling, self._latency, getattr(self._there, name))


async def _travelling(latency: float, method: Any, *arguments: Any, **options: Any) -> Any:
    """The answer of a method, which is called after the way there, and answers after the way back."""
    await asyncio.sleep(latency / 2)
    answer = await method(*arguments, **options)
    await asyncio.sleep(latency / 2)
    return answer
