"""Messages of WebSockets: what each of them takes, how that slows sockets down, and when a socket is closed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anyio import current_time, sleep
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Charge, Decision, Take, is_outage
from .delays import loop_for_messages
from .enforcer import Enforcer
from .functions import connection_of
from .plan import RuleTable
from .rules import STRICTNESS, CompiledRule

MESSAGE_MAX_WAIT = 5.0
"""The most seconds for which reading from a WebSocket may pause."""

TRY_AGAIN_LATER = 1013
TOO_MANY, UNAVAILABLE = "too many messages", "rate limit unavailable"


class MessageLimits:
    """``takes`` is what each message of a socket takes, as of the last ``follow``, under the keys of its handshake.

    ``source`` is the middleware, whose ``rule_table`` is replaced when a limit changes. The socket's scope is that of
    the handshake, however the app has changed it since.
    """

    def __init__(self, source: Any, scope: Scope) -> None:
        self._source = source
        self._scope = {**scope}
        self._table: RuleTable | None = None
        self._keys: list[tuple[CompiledRule, str | None]] = []
        self.takes: tuple[Take, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether no limit has changed since the last ``follow``."""
        return self._table is self._source.rule_table

    def use_keys(self, found: Iterable[tuple[CompiledRule, str | None]]) -> None:
        """Use these keys of rules, which are those of the handshake."""
        self._keys = list(found)

    async def follow(self) -> None:
        """Follow the current rules. Keys stay; only a rule that is new, or has another key function, finds its key."""
        table = self._source.rule_table
        plan = table.plan_for(self._scope)
        connection = connection_of(self._scope)
        charges: dict[str, Charge] = {}
        limiting = []
        for rule in plan.rules if plan else ():
            if not rule.messages or rule.shadow:
                continue
            known = [key for other, key in self._keys if (other.name, other.key) == (rule.name, rule.key)]
            key = known[0] if known else await rule.key_of(connection)
            if not known:
                self._keys.append((rule, key))
            if key is not None:
                limiting.append(rule)
                for quota in rule.messages:
                    charge = Charge(quota, key, 1, rule.messages_name)
                    charges.setdefault(charge.bucket, charge)
        on_error = STRICTNESS[max([rule.strictness for rule in limiting], default=0)]
        self.takes = (Take(tuple(charges.values()), MESSAGE_MAX_WAIT, on_error=on_error),) if charges else ()
        self._table = table


@dataclass(slots=True, eq=False)
class _Read:
    """A message that was read but not delivered yet, and the bookings for it."""

    message: Message
    decisions: Sequence[Decision] | None = None
    """``None`` until its slot is booked."""
    ready_at: float = 0.0
    """When its slot comes, in seconds of the event loop."""
    booking: asyncio.Task[None] | None = None
    """The task that books its slot in a remote store; it goes on even if the caller that waits for it is cancelled."""


class Throttled:
    """An app around another one, for one connection: it receives messages of a WebSocket no faster than a quota allows.

    Each message takes a slot before the app gets it. Until then nothing more is read, so that the server's buffers
    fill up and TCP slows the peer down. If the slot is too far away, because other sockets of the same key have taken
    the slots before it, the socket is closed: to the app it looks as if the peer had disconnected. The same happens
    during an outage of the store in which nobody may pass. Hooks are called with the decision that closes a socket.

    A message that was read belongs to the connection, and so does its slot: if the app cancels ``receive``, the next
    call returns the message, as soon as its slot has come. The slot of a message that the app never gets is given back.
    """

    def __init__(self, app: ASGIApp, enforcer: Enforcer, scope: Scope, limits: MessageLimits) -> None:
        self._app = app
        self._enforcer = enforcer
        self._scope = scope
        self._store = enforcer.store
        self.limits = limits
        self._read: deque[_Read] = deque()
        self._closed_because = ""
        """Why the socket was closed here, if it was."""
        self._is_over = False
        """Whether limiting has ended, because one of the two sides has closed the socket."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def slow_receive() -> Message:
            return await self._next(receive, send)

        async def guarded_send(message: Message) -> None:
            if self._closed_because:
                raise OSError(f"the WebSocket was closed with {TRY_AGAIN_LATER}: {self._closed_because}")
            await send(message)
            if message["type"] == "websocket.close":
                await self._end()

        try:
            await self._app(scope, slow_receive, guarded_send)
        finally:
            await self._end()

    async def _next(self, receive: Receive, send: Send) -> Message:
        """The next message, as soon as its slot has come."""
        while not self._closed_because:
            if not self._read:
                self._read.append(_Read(await receive()))
            read = self._read[0]
            is_limited = read.message["type"] == "websocket.receive" and not self._is_over
            if is_limited and not await self._wait_for_slot(read):
                await self._close(read, send)
            elif self._read and self._read[0] is read:  # otherwise another task of the app has got it
                return self._read.popleft().message
        return {"type": "websocket.disconnect", "code": TRY_AGAIN_LATER, "reason": self._closed_because}

    async def _wait_for_slot(self, read: _Read) -> bool:
        """Wait for the slot of a message; return false if it is too far away."""
        if not self.limits.is_current:
            await self.limits.follow()
        if read.decisions is None and self.limits.takes:
            await self._book(read)
        is_allowed = all(decision.allowed for decision in read.decisions or ())
        delay = read.ready_at - current_time()
        if is_allowed and delay > 0:
            await sleep(delay)
        return is_allowed

    async def _book(self, read: _Read) -> None:
        """Book the slot of a message. A remote store is called only once, even if ``receive`` is cancelled."""
        if self._store.in_process:  # it never waits
            await self._take(read)
            return
        if read.booking is None:
            read.booking = loop_for_messages().create_task(self._take(read))
        booking = read.booking
        try:
            await asyncio.shield(booking)
        finally:
            if booking.done():  # if it has failed, the next call tries again
                read.booking = None

    async def _take(self, read: _Read) -> None:
        decisions = await self._store.take(self.limits.takes)
        read.ready_at = current_time() + max([decision.delay for decision in decisions])
        read.decisions = decisions

    async def _close(self, read: _Read, send: Send) -> None:
        """Close the socket because of a message, in the same way as a refused handshake."""
        if not self._closed_because:
            refusals = [decision for decision in read.decisions or () if not decision.allowed]
            self._closed_because = UNAVAILABLE if all(map(is_outage, refusals)) else TOO_MANY
            if self._enforcer.is_observed:
                self._enforcer.observe(refusals[:1], self._scope, latency=None)
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": self._closed_because})
            await self._end()

    async def _end(self) -> None:
        """Give back the slots of messages that the app has not got."""
        self._is_over = True
        for read in tuple(self._read):
            if read.booking is None:
                await self._give_back(read)
            else:
                await self._enforcer.successive_takes.finish(self._give_back(read))

    async def _give_back(self, read: _Read) -> None:
        if read.booking is not None:
            await asyncio.wait((read.booking,))
        taken = [(self._store, decision) for decision in read.decisions or () if decision.allowed]
        await self._enforcer.successive_takes.give_back(taken)
