"""Requests that wait for a slot instead of being refused.

A refusal says how long each charge would have to wait. The charge with the longest wait is booked, in one call to the
store, which puts the request into the queue of all processes. A place in flight, which may come back at once, is waited
for last. When the slot has come, the other charges are taken as well. They are not booked ahead: a request that waits
for one quota must not use up another one in advance, which it may share with requests that do not wait. If the other
charges are refused then, the slot goes to the next in the queue, and the request tries again. So requests that enter
the app stay within each of their quotas at that moment, not only at the moment of booking.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Integral
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from ..background import keep, running_loop
from ..decision import Charge, Decision, Take, is_outage
from ..errors import require_number
from ..leases import PlaceWaiter
from ..quotas import SECOND_US, InFlight, has_places
from ..stores import Store
from ..stores.base import joined
from ..waiting.drivers import run_async
from ..waiting.queues import key_of
from ..waiting.waiter import PaceTimeout, waiters_of
from .settling import give_back, take_one

# A round of a request that has no turn takes at least so long
ROUND_US: Final = 10_000.0

# The most bytes that are read while a request waits. After that, the server's flow control holds the rest back.
MOST_BYTES: Final = 16_384

MESSAGE_BYTES: Final = 256  # how many bytes a message counts for, beside its own


def require_waiting(count: int) -> int:
    """A number of requests that may wait, at least 1; ``ConfigurationError`` otherwise."""
    what = "max_waiting must be a number of requests, at least 1"
    return int(require_number(what, count, 1, math.inf, "max_waiting=1000", Integral))


def require_asyncio() -> None:
    """Raise ``ConfigurationError`` where no event loop of asyncio runs: no server is asked, and nothing waits."""
    running_loop("a RedisStore, a max_delay or a limit of messages", "leave them out")


# Waits


async def wait(
    store: Store, refusal: Decision, max_delays: Sequence[float], receiving: Receiving
) -> tuple[Decision, bool]:
    """The decision after waiting for what was refused, for at most ``max_delays`` seconds for each charge.

    It is a refusal if the wait is too long. Also whether the client has gone meanwhile, which then has no slot.
    """
    if _longest_wait(refusal, max_delays) is None:
        return _beyond(refusal, max_delays), False
    require_asyncio()  # dependencies have no start-up that checks it
    waiting = keep(store, asyncio.ensure_future(after_waiting(store, refusal, max_delays)))
    leaving = asyncio.ensure_future(receiving.until_gone(asyncio.current_task()))
    stays = False
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        stays = not leaving.done()
        return (waiting.result(), False) if stays else (refusal, True)
    finally:
        leaving.cancel()
        if not stays and not waiting.cancel():  # else it gives back by itself
            await give_back([(store, waiting.result())])


def _longest_wait(refusal: Decision, left: Sequence[float], last: int | None = None) -> int | None:
    """The index of the charge with the longest wait; ``None`` if a wait is too long, or no slot will come.

    ``left`` are the seconds that a request may still wait for each charge. The ``last`` one that was waited for comes
    after the others: what refused at its slot needs time. If all who wait for that passed on the slot to each other, it
    would never be used.
    """
    # A place in flight may come back at once
    waits = [0.0 if isinstance(state.quota, InFlight) else state.retry_after for state in refusal.states]
    refusing = [at for at, state in enumerate(refusal.states) if not state.allowed]
    is_near = all(left[at] > 0.0 and waits[at] <= left[at] for at in refusing) and not is_outage(refusal)
    return max(refusing, key=lambda at: (at != last, waits[at])) if is_near and refusing else None


async def after_waiting(store: Store, refusal: Decision, max_delays: Sequence[float]) -> Decision:
    """The decision after the wait; what is booked is given back if this is cancelled.

    Of those with equal charges whose slots were refused by others, one at a time books again, the oldest: each of them
    would pass its slot on to the next one, which is refused as well. Those that come later go behind them. All do so by
    rounds if the rules allow different waits: the shortest one of them must not end a wait for another quota.
    """
    waiter, take, left, index, turn = PlaceWaiter(store), refusal.take, list(max_delays), None, None
    turns, since_us, before_us, decision = waiters_of(store).turns, waiter.now_us(), 0.0, None
    key, until_us = (key_of(take), since_us + max_delays[0] * SECOND_US) if len({*max_delays}) == 1 else (None, 0.0)
    try:
        while (index := _longest_wait(refusal, left, index)) is not None:
            with suppress(PaceTimeout):  # others have booked before it
                if turn is not None or key not in turns:
                    decision = await _book(waiter, take, _together(take, left, index), left[index])
                if decision is None and turn is None and key is not None:
                    turn = await run_async(turns.wait_and_enter(key, waiter.clock, until_us, -since_us))
            decision = decision or await take_one(store, take)
            spent_us = float(round(waiter.now_us() - since_us))
            if decision.allowed:
                at_us = decision.now_us + decision.wait_us
                return replace(decision, asked_us=decision.asked_us or at_us, now_us=at_us - spent_us, wait_us=spent_us)
            # Without a turn, callers may pass slots on to each other that none of them can use yet
            await asyncio.sleep(max((turn is None) * ROUND_US - (spent_us - before_us), 0.0) / SECOND_US)
            refusal, left = decision, [max(most - spent_us / SECOND_US, 0.0) for most in max_delays]
            decision, before_us = None, spent_us
    finally:
        if turn is not None:
            turns.leave(turn)
    return _beyond(refusal, max_delays)


def _together(take: Take, left: Sequence[float], index: int) -> tuple[Charge, ...]:
    """The charge at an index; or all, if all are of one rule, with a place in flight, so that its callers keep order.

    A place that others share is not held while a request waits for a rate of another rule.
    """
    is_one_rule = len({(each.key, each.name, most) for each, most in zip(take.charges, left)}) == 1
    holds = has_places([each.quota for each in take.charges])
    return take.charges if is_one_rule and holds else (take.charges[index],)


async def _book(waiter: PlaceWaiter, take: Take, booked: tuple[Charge, ...], max_wait: float) -> Decision | None:
    """Wait for slots and places of some charges, and then take the others; ``None`` if they are refused.

    Nothing stays booked then, nor if this is cancelled. Raises ``PaceTimeout``.
    """
    others, holds = [each for each in take.charges if each not in booked], has_places([each.quota for each in booked])
    ahead = replace(take, charges=booked, max_wait=max_wait)
    slot = await run_async(waiter.wait_for_all(ahead) if holds else waiter.wait(ahead))
    if not others:
        return slot
    rest = None
    try:
        rest = await take_one(waiter.store, replace(take, charges=tuple(others)))
    finally:
        if rest is None or not rest.allowed:
            await (give_back([(waiter.store, slot)]) if holds else run_async(waiter.pass_on(slot, has_departed=True)))
    if holds:  # it is a place alone, which has waited since its lease began
        slot = replace(slot, now_us=rest.now_us)
    # Its time is that of the slot, so what is given back of the others is never too much
    return joined(take, (slot, rest), asked_us=max(slot.now_us + slot.wait_us, rest.now_us)) if rest.allowed else None


def _beyond(refusal: Decision, max_delays: Sequence[float]) -> Decision:
    """A refusal as seen by a request that may wait for ``max_delays`` seconds for each charge.

    ``retry_after`` is the excess of the waits over what a new request may wait, and at least a microsecond: this one,
    which has already waited, is refused.
    """
    if is_outage(refusal):
        return refusal
    waits = [state.retry_after for state in refusal.states]
    mosts = [0.0 if isinstance(state.quota, InFlight) else most for state, most in zip(refusal.states, max_delays)]
    index = max(range(len(waits)), key=lambda each: waits[each] - mosts[each])
    wait_us = max(waits[index] * SECOND_US, 1.0)
    take = replace(refusal.take, max_wait=min(mosts[index], (wait_us - 1.0) / SECOND_US))
    return replace(refusal, take=take, wait_us=wait_us)


# What a request that waits receives


class Receiving:
    """The ``receive`` of a request that may wait: first it returns what was read while the request waited.

    Messages are kept for the app in order and unchanged, and so is an error. A call of ``receive`` is never cancelled
    while the request runs: it may belong to an outer middleware, which may already hold a message and would lose it.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        # The calls whose messages the app has not got; the last one may be under way
        self._calls: deque[asyncio.Future[Message]] = deque()

    async def __call__(self) -> Message:
        """The next message of the request."""
        while self._calls:
            call = self._calls[0]
            if not call.done():  # who polls in a scope that is cancelled gets what is there
                await asyncio.wait((call,))
            if self._calls and self._calls[0] is call:  # otherwise another task of the app has got its message
                self._calls.popleft()
                return call.result()
        return await self._receive()

    async def until_gone(self, request: asyncio.Task[Any] | None) -> None:
        """Receive until the client has gone, or for ever; what is under way when the request ends is cancelled."""
        if request is not None:
            request.add_done_callback(self._end)
        bytes_left = MOST_BYTES
        while bytes_left > 0:
            call = asyncio.ensure_future(self._receive())
            self._calls.append(call)
            await asyncio.wait((call,))
            if call.cancelled() or call.exception() is not None:
                break
            if call.result()["type"] in ("http.disconnect", "websocket.disconnect"):
                return
            bytes_left -= MESSAGE_BYTES + len(call.result().get("body") or b"")
        await asyncio.Event().wait()

    def _end(self, _: object) -> None:
        for call in self._calls:
            if not call.cancel() and not call.cancelled():
                call.exception()  # which the event loop then no longer reports


def receiving_of(connection: HTTPConnection) -> Receiving:
    """The ``Receiving`` of a request or WebSocket of Starlette, which from now on receives through it.

    A dependency shares its connection with the endpoint, and there is no public way to put a message back.
    """
    receiving = Receiving(connection._receive)  # type: ignore[attr-defined]
    connection._receive = receiving  # type: ignore[attr-defined]
    return receiving
