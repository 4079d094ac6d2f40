"""Successive takes of one request: if the request ends in between, all of them are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from anyio import CancelScope

from ...algorithms import State
from ...decision import Decision, Take
from ...errors import StoreError
from ...stores import Store, settle

T = TypeVar("T")

Taken: TypeAlias = tuple[Store, Decision]
"""A decision that allowed a take, and the store that made it."""


class SuccessiveTakes:
    """The successive takes of all requests of a middleware; cancelled requests give theirs back."""

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[Any]] = set()

    async def take(self, store: Store, take: Take, taken: Sequence[Taken]) -> Decision:
        """Make the take that comes after ``taken``. A cancelled request gives everything back, including this take."""
        if store.in_process:  # it never waits
            return await _decision(store, take)
        taking = asyncio.ensure_future(_decision(store, take))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            await self.undo(store, taking, taken)
            raise

    async def undo(self, store: Store, taking: asyncio.Task[Decision], taken: Sequence[Taken] = ()) -> None:
        """Give back what was taken, and what this task takes, which nobody awaits any longer."""
        await self.finish(_undo(store, taking, taken))

    async def give_back(self, taken: Sequence[Taken]) -> dict[str, State]:
        """Give back what was taken, and return the states of the buckets afterwards.

        What a store cannot take back now stays charged.
        """
        if all(store.in_process for store, _ in taken):
            return await _give_back(taken)
        return await self.finish(_give_back(taken))

    async def aclose(self) -> None:
        """Complete the give-backs of cancelled requests."""
        while self._ending:
            await asyncio.wait(self._ending)

    async def finish(self, ending: Coroutine[Any, Any, T]) -> T:
        """Run ``ending`` to its end, however often the request is cancelled meanwhile."""
        task = asyncio.ensure_future(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        with CancelScope(shield=True):
            await asyncio.shield(task)
        return task.result()


async def _decision(store: Store, take: Take) -> Decision:
    (decision,) = await store.take((take,))
    return decision


async def _undo(store: Store, taking: asyncio.Task[Decision], taken: Sequence[Taken]) -> None:
    await _give_back(taken)
    await asyncio.wait((taking,))
    if not taking.cancelled() and taking.exception() is None and taking.result().allowed:
        await _give_back([(store, taking.result())])


async def _give_back(taken: Sequence[Taken]) -> dict[str, State]:
    states: dict[str, State] = {}
    for store, decision in taken:
        with suppress(StoreError):  # which the store has logged
            settled = await settle(store, decision, [0.0] * len(decision.charges))
            states |= {charge.bucket: each.state for charge, each in zip(decision.charges, settled)}
    return states
