"""Messages of WebSockets: what each of them takes, how that slows sockets down, and when a socket is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Decision, Take, is_outage
from .delays import after_waiting
from .enforcer import Enforcer
from .plan import MESSAGE_KEYS, Plan
from .settling import give_back, see_through, take_one

MESSAGE_MAX_WAIT = 5.0  # the most seconds for which reading from a WebSocket may pause, for each of its quotas

TRY_AGAIN_LATER = 1013
TOO_MANY, UNAVAILABLE = "too many messages", "rate limit unavailable"


class Throttled:
    """An app around another one, for one connection: it receives messages of a WebSocket no faster than a quota allows.

    Each message takes a slot under the rules of the handshake, those in ``plan``, before the app gets it. Until then
    nothing more is read, so that the server's buffers fill up and TCP slows the peer down. If the slot is too far away,
    because other sockets of the same key have taken the slots before it, the socket is closed: to the app it looks as
    if the peer had disconnected. The same happens during an outage of the store in which nobody may pass. Hooks are
    called with the decision that closes a socket.

    A message that was read belongs to the connection, and so does its slot: if the app cancels ``receive``, the next
    call returns the message, as soon as its slot has come. The slot of a message that the app never gets is given back.
    """

    def __init__(self, app: ASGIApp, enforcer: Enforcer, plan: Plan) -> None:
        self._app, self._enforcer, self._plan = app, enforcer, plan
        self._scope: Scope  # that of the handshake, however the app changes it
        self._take: Take | None = None  # what each message takes
        self._slot: Decision | None = None  # the slot of the message that was read and not delivered yet
        # The task that reads it, and waits for its slot, whoever receives
        self._coming: asyncio.Task[Message] | None = None
        self._closed_because = ""  # why the socket was closed here, if it was

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def slow_receive() -> Message:
            while True:
                coming = self._coming = self._coming or asyncio.ensure_future(self._next(receive, send))
                if not coming.done():  # who polls in a scope that is cancelled gets what is there
                    await asyncio.wait((coming,))
                if self._coming is coming:  # otherwise another task of the app has got it
                    self._coming = self._slot = None
                    return coming.result()

        async def guarded_send(message: Message) -> None:
            if self._closed_because:
                raise OSError(f"the WebSocket was closed with {TRY_AGAIN_LATER}: {self._closed_because}")
            if message["type"] == "websocket.close":
                self._take = None
            await send(message)

        self._scope = {**scope}
        self._take = self._plan.message_take(scope.pop(MESSAGE_KEYS))
        try:
            await self._app(scope, slow_receive, guarded_send)
        finally:
            await see_through([self._enforcer.store], self._end)

    async def _next(self, receive: Receive, send: Send) -> Message:
        """The next message, as soon as its slot has come."""
        if not self._closed_because:
            message = await receive()
            if message["type"] == "websocket.receive" and self._take is not None:
                await self._wait_for_slot(self._take, send)
        if self._closed_because:
            return {"type": "websocket.disconnect", "code": TRY_AGAIN_LATER, "reason": self._closed_because}
        return message

    async def _wait_for_slot(self, take: Take, send: Send) -> None:
        """Wait for the slot of a message, or close the socket if it is too far away, as a refused handshake."""
        decision, count = await take_one(self._enforcer.store, take), len(take.charges)
        if not decision.allowed:  # it waits for one quota after the other
            decision = await after_waiting(self._enforcer.store, decision, [count * MESSAGE_MAX_WAIT] * count)
        if decision.allowed or self._take is None:  # or the app has closed the socket meanwhile
            self._slot = decision
            return
        self._closed_because = UNAVAILABLE if is_outage(decision) else TOO_MANY
        if self._enforcer.hooks:
            self._enforcer.observe([decision], self._scope, latency=None)
        with suppress(OSError):  # the client has gone already
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": self._closed_because})

    async def _end(self) -> None:
        """Give back the slot of a message that the app has not got. Later messages take nothing."""
        self._take = None
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        if self._slot is not None:
            await give_back([(self._enforcer.store, self._slot)])
