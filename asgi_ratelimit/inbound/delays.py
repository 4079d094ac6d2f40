"""Requests that wait for a slot instead of being refused, and takes of one request that come one after another.

A refusal says how long each charge would have to wait. The charge with the longest wait is booked, in one call to the
store, which puts the request into the queue of all processes. When its slot has come, the other charges are taken as
well. They are not booked ahead: a request that waits for one quota must not use up another one in advance, which it may
share with requests that do not wait. If the other charges are refused then, the slot goes to the next in the queue, and
the request tries again. So requests that enter the app stay within each of their quotas at that moment, not only at the
moment of booking.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Final, TypeAlias, TypeVar

from anyio import CancelScope
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope

from ..algorithms import State
from ..clock import time_of
from ..decision import Decision, Take, is_outage
from ..errors import ConfigurationError, StoreError
from ..logs import warn_once
from ..quotas import MAX_PERIOD, SECOND_US
from ..stores import Store, settle
from ..stores.event_loops import running_loop
from ..waiting import PaceTimeout, SlotWaiter, run_async

MAX_WAITING: Final = 1000
"""How many requests may wait at a time by default."""

MAX_ROUNDS: Final = 4
"""The most times that a request waits for a slot because another quota refuses once its slot has come."""

LONGEST_USUAL: Final = 600.0
"""Seconds; a longer wait is probably meant in milliseconds."""

MOST_BYTES: Final = 16_384
"""The most bytes of a body that are read while a request waits. After that, the server's flow control holds the rest
back."""

MOST_MESSAGES: Final = 64
"""The most messages that are read, because each takes more memory than its bytes."""

_GONE = frozenset({"http.disconnect", "websocket.disconnect"})

T = TypeVar("T")

Taken: TypeAlias = tuple[Store, Decision]
"""A decision that allowed a take, and the store that made it."""


# Arguments


def checked_max_delay(seconds: float) -> float:
    """Seconds from 0 to 400 days; ``ConfigurationError`` otherwise."""
    is_number = isinstance(seconds, (int, float, Real)) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds <= MAX_PERIOD:  # false for NaN, too
        if seconds >= LONGEST_USUAL:
            warn_once(
                "a-time-in-milliseconds",
                f"max_delay={seconds!r} is in seconds, and few clients wait that long: max_delay=2.0",
            )
        return float(seconds)
    raise ConfigurationError(f"max_delay must be seconds from 0 to 400 days, not {seconds!r}: max_delay=2.0")


def checked_max_waiting(count: int) -> int:
    """A number of requests, at least 1; ``ConfigurationError`` otherwise."""
    if isinstance(count, (int, Integral)) and not isinstance(count, bool) and count >= 1:
        return int(count)
    raise ConfigurationError(
        f"max_waiting must be a whole number of requests, at least 1, not {count!r}: max_waiting=1000, "
        "or max_delay=0.0 where none waits"
    )


def require_asyncio() -> None:
    """Raise ``ConfigurationError`` if requests cannot wait because no event loop of asyncio runs."""
    running_loop("a max_delay", "leave it at 0.0, which refuses at once")


def loop_for_messages() -> AbstractEventLoop:
    """The event loop on which messages book slots in a remote store; ``ConfigurationError`` without asyncio."""
    return running_loop("messages= over a store that is not in this process", 'use store="memory://"')


# Takes of one request, one after another


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


# Waits


@dataclass(slots=True)
class WaitingCount:
    """How many requests wait, over the stores of a middleware and of the dependencies behind it; at most ``most``.

    A quarter of the places is kept for others than the key that has the most: a client may leave without notice.
    """

    most: int
    by_key: Counter[str] = field(default_factory=Counter)

    def is_full_for(self, key: str) -> bool:
        """Whether one more request of this key may not wait."""
        return self.by_key.total() >= self.most or self.by_key[key] >= self.most - self.most // 4

    def add(self, key: str, change: int) -> None:
        """Count a request that begins to wait, 1, or goes, -1."""
        self.by_key[key] += change
        if not self.by_key[key]:
            del self.by_key[key]


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
        key = refusal.charges[0].key
        if count.is_full_for(key):
            return refusal, 0.0
        require_asyncio()  # dependencies have no start-up that checks it
        if self._waiter is None:
            self._waiter = SlotWaiter(self._store)
        count.add(key, 1)
        try:
            return await self._wait(self._waiter, refusal, max_delays, receiving)
        finally:
            count.add(key, -1)

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
                decision = _beyond(decision, waits, max_delays)
                break
            place = waits.index(max(waits))
            try:
                parts = await self._book(waiter, take, place, left[place], receiving)
                waited = (self._now_us() - since_us) / SECOND_US
            except PaceTimeout:  # its slot is too far away, so it has not waited for one
                parts = [await _decision(self._store, take)]
            if receiving.is_gone:
                break
            if all(part.allowed for part in parts):
                return _joined(take, parts), waited
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
        return [await _decision(self._store, take)]

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


def _beyond(refusal: Decision, waits: Sequence[float], max_delays: Sequence[float]) -> Decision:
    """A refusal as seen by a request that may wait for ``max_delays`` seconds for each charge.

    ``retry_after`` is the excess of the waits over what a new request may wait, and at least a microsecond: this one,
    which has already waited, is refused.
    """
    excesses = [wait - most for wait, most in zip(waits, max_delays)]
    place = excesses.index(max(excesses))
    wait_us = max(waits[place] * SECOND_US, 1.0)
    take = replace(refusal.take, max_wait=min(max_delays[place], (wait_us - 1.0) / SECOND_US))
    return replace(refusal, take=take, wait_us=wait_us)


def _joined(take: Take, parts: Sequence[Decision]) -> Decision:
    """The decision on a take whose charges were taken one after another, the first of them at a slot of its own.

    Its time is that of the first part, so what is given back of the others is never too much.
    """
    first, *others = parts
    stored = {charge.bucket: state for part in parts for charge, state in zip(part.charges, part.stored)}
    return Decision(
        take,
        True,
        first.wait_us,
        [stored[charge.bucket] for charge in take.charges],
        first.now_us,
        first.id,
        degraded=any(part.degraded for part in parts),
        asked_us=max([first.now_us + first.wait_us, *[part.now_us for part in others]]),
    )


# What a request that waits receives


class Receiving:
    """The ``receive`` of a request that may wait: first it returns what was read while the request waited.

    Messages are kept for the app in order and unchanged. A pending ``receive`` is never cancelled while the request
    runs: it may belong to an outer middleware, which may already hold a message and would lose it. So a task reads on,
    and the app waits for what the task receives.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._read: deque[Message] = deque()
        self._bytes_left = MOST_BYTES
        self._is_watching = False
        self._reading: asyncio.Task[None] | None = None
        self.is_gone = False
        """Whether the client has gone while the request waited."""
        self.waited = 0.0
        """How many seconds the request has waited for slots."""
        if any(name == b"expect" for name, _ in scope.get("headers") or ()):
            self._bytes_left = 0  # reading would make the client send its body: that is up to the app

    async def __call__(self) -> Message:
        """The next message of the request."""
        if self._reading is not None and not self._read:
            await self._end_of(self._reading)
        return self._read.popleft() if self._read else await self._receive()

    def watch(self) -> asyncio.Task[None]:
        """A task that reads until the client has gone, or no more may be kept. Do not cancel it.

        What it reads after nobody receives any longer is dropped when the task of the request ends. So is an error.
        """
        self._is_watching = True
        if self._reading is None or (self._reading.done() and not _error(self._reading)):
            self._reading = asyncio.ensure_future(self._read_on())
            _end_with(asyncio.current_task(), self._reading)
        return self._reading

    def stop_watching(self) -> None:
        """Read no further than the message that is awaited now."""
        self._is_watching = False

    async def _read_on(self) -> None:
        while self._is_watching and self._bytes_left > 0 and len(self._read) < MOST_MESSAGES and not self.is_gone:
            message = await self._receive()
            self._read.append(message)
            self._bytes_left -= len(message.get("body") or b"")
            self.is_gone = message["type"] in _GONE

    async def _end_of(self, reading: asyncio.Task[None]) -> None:
        """Wait until no other task receives; raise the error with which that task ended, once."""
        if not reading.done():
            await asyncio.wait((reading,))
        error = _error(reading)
        if error is not None and not self._read and self._reading is reading:
            self._reading = None
            raise error


def receiving_of(connection: HTTPConnection) -> Receiving:
    """The ``Receiving`` of a request or WebSocket of Starlette, which from now on receives through it.

    A dependency shares its connection with the endpoint, and there is no public way to put a message back.
    """
    receiving = Receiving(connection.scope, connection._receive)  # type: ignore[attr-defined]
    connection._receive = receiving  # type: ignore[attr-defined]
    return receiving


def _error(task: asyncio.Task[None]) -> BaseException | None:
    """The error with which a task has ended; the event loop then no longer reports it."""
    return None if task.cancelled() else task.exception()


def _end_with(request: asyncio.Task[object] | None, reading: asyncio.Task[None]) -> None:
    """Cancel the reading for a request when the task of the request ends, and keep its errors out of the log."""

    def cancel(_: object) -> None:
        reading.cancel()

    def forget(_: object) -> None:
        _error(reading)
        if request is not None:
            request.remove_done_callback(cancel)

    if request is not None:
        request.add_done_callback(cancel)
    reading.add_done_callback(forget)
