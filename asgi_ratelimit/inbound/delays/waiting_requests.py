"""Requests that would be refused, and wait for a slot instead.

A refusal says how long each charge would have to wait. The charge with the longest wait is booked: one call to the
store, which puts the request into line over all processes. When its slot has come, the other charges are taken as
well. They are not booked ahead: a request that waits for one quota must not hold another one empty until then, which
may be shared with requests that wait for nothing. Where they refuse by then, the slot is given back, and the request
looks again. So what enters the app stays within each of its quotas at that moment, not only when it was booked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anyio import CancelScope

from ...clock import time_of
from ...decision import Decision, Take
from ...errors import StoreError
from ...quotas import SECOND_US
from ...stores import Store, settle
from ...waiting import PaceTimeout, SlotWaiter, run_async
from .arguments import require_asyncio
from .joining import beyond, joined
from .receiving import Receiving

MAX_ROUNDS = 4
"""How often a request waits for a slot, at the most, because another quota refuses when its slot has come."""


class WaitingRequests:
    """The requests of one middleware, or of dependencies, that wait: at most ``max_waiting`` at a time."""

    def __init__(self, store: Store, max_waiting: int) -> None:
        self._store = store
        self._max_waiting = max_waiting
        self._count = 0
        self._ending: set[asyncio.Future[Decision]] = set()
        self._now_us = time_of(getattr(store, "clock", None))  # only stores that run on another clock have one
        self._waiter: SlotWaiter | None = None

    async def wait(self, refusal: Decision, max_delays: Sequence[float], receiving: Receiving) -> Decision:
        """Wait for what was refused, for so many seconds at most for each charge; the decision after that.

        Its ``delay`` is how long the request has waited. It is a refusal where a wait is too long, where too many
        requests wait already, or where the client has gone.
        """
        if self._count >= self._max_waiting:
            return refusal
        require_asyncio()  # of dependencies, which have no start
        if self._waiter is None:
            self._waiter = SlotWaiter(self._store)
        self._count += 1
        try:
            return await self._wait(self._waiter, refusal, max_delays, receiving)
        finally:
            self._count -= 1

    async def aclose(self) -> None:
        """See those through that have been cancelled, and give their slots back."""
        if self._ending:
            await asyncio.wait(self._ending)

    async def _wait(
        self, waiter: SlotWaiter, refusal: Decision, max_delays: Sequence[float], receiving: Receiving
    ) -> Decision:
        take, since_us, waited, decision = refusal.take, self._now_us(), 0.0, refusal
        if take is None:
            return refusal
        for _ in range(MAX_ROUNDS):
            left = [max(max_delay - waited, 0.0) for max_delay in max_delays]
            if _is_outage(decision):
                return replace(decision, delay=waited)
            too_long = beyond(decision, left)
            if too_long.retry_after > 0.0:
                return replace(too_long, delay=waited)
            waits = [state.retry_after for state in decision.states]
            place = waits.index(max(waits))
            try:
                parts = await self._book(waiter, take, place, left[place], receiving)
                waited = (self._now_us() - since_us) / SECOND_US
            except PaceTimeout:  # its slot came out too far away, so it has not waited for one
                parts = await self._take(take)
            if receiving.is_gone:
                return replace(decision, delay=waited)
            if all(part.allowed for part in parts):
                return joined(take, parts, waited)
            decision = parts[0]
        return replace(decision, delay=waited)

    async def _book(
        self, waiter: SlotWaiter, take: Take, place: int, max_wait: float, receiving: Receiving
    ) -> list[Decision]:
        """Wait for a slot of one charge, and take the others when it has come: decisions that allow it all.

        Or one refusal of the whole take. Where the client has gone, nothing stays booked. Raises ``PaceTimeout``.
        """
        booked = take.charges[place]
        slot = await self._slot(waiter, replace(take, charges=(booked,), max_wait=max_wait), receiving)
        others = tuple([charge for charge in take.charges if charge is not booked])
        if slot is None:
            return []
        if not others:
            return [slot]
        try:
            (decision,) = await self._take(replace(take, charges=others))
        except BaseException:
            await self._give_back(slot)
            raise
        if decision.allowed:
            return [slot, decision]
        await self._give_back(slot)
        return await self._take(take)

    async def _slot(self, waiter: SlotWaiter, take: Take, receiving: Receiving) -> Decision | None:
        """The slot of a take, when it has come; ``None`` where the client goes first. Raises ``PaceTimeout``."""
        slot = asyncio.ensure_future(run_async(waiter.wait(take)))
        watching = asyncio.ensure_future(receiving.until_gone())
        is_used = False
        try:
            await asyncio.wait((slot, watching), return_when=asyncio.FIRST_COMPLETED)
            if receiving.is_gone:
                return None
            decision = await slot
            is_used = not receiving.is_gone
            return decision if is_used else None
        finally:
            with CancelScope(shield=True):
                self._ending.add(slot)
                slot.add_done_callback(self._ending.discard)
                await _end(watching)
                await _end(slot)
                if not is_used and not slot.cancelled() and slot.exception() is None:
                    await self._give_back(slot.result())

    async def _take(self, take: Take) -> list[Decision]:
        return await self._store.take((take,))

    async def _give_back(self, decision: Decision) -> None:
        with CancelScope(shield=True), suppress(StoreError):  # which the store has logged
            await settle(self._store, decision, [0.0] * len(decision.states))


async def _end(task: asyncio.Future[Any]) -> None:
    """End a task, unless it is done. Whatever it raises is of no interest any more."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


def _is_outage(decision: Decision) -> bool:
    """Whether the store is out, and refuses all: no slot will come."""
    return decision.degraded and all(state.allowed for state in decision.states)
