"""Requests that would be refused, and wait for a slot instead.

A refusal says how long each charge would have to wait. The charge with the longest wait is booked, in one call to the
store, which puts the request into the queue of all processes. When its slot has come, the other charges are taken as
well. They are not booked ahead: a request that waits for one quota must not use up another one in advance, which it may
share with requests that do not wait. If the other charges are refused then, the slot goes to the next in the queue, and
the request tries again. So requests that enter the app stay within each of their quotas at that moment, not only at the
moment of booking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...clock import time_of
from ...decision import Decision, Take, is_outage
from ...quotas import SECOND_US
from ...stores import Store
from ...waiting import PaceTimeout, SlotWaiter, run_async
from .delay_arguments import require_asyncio
from .joined_decisions import beyond, joined
from .received_messages import Receiving
from .successive_takes import SuccessiveTakes

MAX_ROUNDS = 4
"""The most times that a request waits for a slot because another quota refuses once its slot has come."""


@dataclass(slots=True)
class WaitingCount:
    """How many requests wait, over the stores of a middleware and of the dependencies behind it; at most ``most``."""

    most: int
    now: int = 0


class WaitingRequests:
    """The requests that wait for slots of one store."""

    def __init__(self, store: Store, successive_takes: SuccessiveTakes) -> None:
        self._store = store
        self._successive_takes = successive_takes
        self._now_us = time_of(store.clock)
        self._waiter: SlotWaiter | None = None

    async def wait(
        self, refusal: Decision, max_delays: Sequence[float], receiving: Receiving, count: WaitingCount
    ) -> tuple[Decision, float]:
        """The decision after waiting for what was refused, for at most ``max_delays`` seconds for each charge.

        And how many seconds the request has waited. It is a refusal if a wait is too long, if too many requests
        already wait, or if the client has gone.
        """
        if count.now >= count.most:
            return refusal, 0.0
        require_asyncio()  # dependencies have no start-up that checks it
        if self._waiter is None:
            self._waiter = SlotWaiter(self._store)
        count.now += 1
        try:
            return await self._wait(self._waiter, refusal, max_delays, receiving)
        finally:
            count.now -= 1

    async def _wait(
        self, waiter: SlotWaiter, refusal: Decision, max_delays: Sequence[float], receiving: Receiving
    ) -> tuple[Decision, float]:
        take, since_us, waited, decision = refusal.take, self._now_us(), 0.0, refusal
        for rounds_left in reversed(range(MAX_ROUNDS + 1)):
            if is_outage(decision):  # no slot will come
                break
            passed = (self._now_us() - since_us) / SECOND_US if rounds_left < MAX_ROUNDS else 0.0
            left = [max(max_delay - passed, 0.0) if rounds_left else 0.0 for max_delay in max_delays]
            waits = [state.retry_after for state in decision.states]
            if any(wait > most for wait, most in zip(waits, left)):
                decision = beyond(decision, max_delays)
                break
            place = waits.index(max(waits))
            try:
                parts = await self._book(waiter, take, place, left[place], receiving)
                waited = (self._now_us() - since_us) / SECOND_US
            except PaceTimeout:  # its slot is too far away, so it has not waited for one
                parts = [await self._take(take)]
            if receiving.is_gone:
                break
            if all(part.allowed for part in parts):
                return joined(take, parts), waited
            decision = parts[0]
        return decision, waited

    async def _book(
        self, waiter: SlotWaiter, take: Take, place: int, max_wait: float, receiving: Receiving
    ) -> list[Decision]:
        """Wait for a slot of one charge, and take the others when it has come: the decisions, all of which allow.

        Or one decision on the whole take if the others were refused. If the client has gone, nothing stays booked.
        Raises ``PaceTimeout``.
        """
        booked = take.charges[place]
        slot = await self._slot(waiter, replace(take, charges=(booked,), max_wait=max_wait), receiving)
        others = tuple([charge for charge in take.charges if charge is not booked])
        if slot is None:
            return []
        if not others:
            return [slot]
        taken = ((self._store, slot),)
        decision = await self._successive_takes.take(self._store, replace(take, charges=others), taken)
        if decision.allowed:
            return [slot, decision]
        await self._successive_takes.finish(run_async(waiter.pass_on(slot, has_departed=True)))
        return [await self._take(take)]

    async def _slot(self, waiter: SlotWaiter, take: Take, receiving: Receiving) -> Decision | None:
        """The slot of a take, once it has come; ``None`` if the client goes first. Raises ``PaceTimeout``."""
        slot = asyncio.ensure_future(run_async(waiter.wait(take)))
        is_used = False
        try:
            await asyncio.wait((slot, receiving.watch()), return_when=asyncio.FIRST_COMPLETED)
            if receiving.is_gone:
                return None
            decision = await slot
            is_used = not receiving.is_gone
            return decision if is_used else None
        finally:
            receiving.stop_watching()
            if not is_used:
                slot.cancel()
                await self._successive_takes.undo(self._store, slot)

    async def _take(self, take: Take) -> Decision:
        (decision,) = await self._store.take((take,))
        return decision
