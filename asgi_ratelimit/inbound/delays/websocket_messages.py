"""Messages of a WebSocket: slowed down, and the socket closed where that is not enough."""

from __future__ import annotations

from anyio import sleep
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...decision import Take
from ...stores import Store

TRY_AGAIN_LATER = 1013
_REASON = "too many messages"


class Throttled:
    """An app around another one, which receives messages of a WebSocket no faster than a quota allows.

    Each message takes a slot before the app gets it. Until then nothing more is read, so that the server's buffers
    fill up and TCP slows the peer down. Where the slot is too far away, because other sockets of the same key have
    taken those before it, the socket is closed: to the app it looks as if the peer had disconnected.
    """

    def __init__(self, app: ASGIApp, store: Store, takes: tuple[Take, ...]) -> None:
        self._app = app
        self._store = store
        self._takes = takes
        self._is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return

        async def slow_receive() -> Message:
            message = _GONE if self._is_closed else await receive()
            if message["type"] == "websocket.receive" and not await self._waits():
                self._is_closed = True
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": _REASON})
            return _GONE if self._is_closed else message

        async def guarded_send(message: Message) -> None:
            if self._is_closed:
                raise OSError(f"the WebSocket was closed with {TRY_AGAIN_LATER}: {_REASON}")
            await send(message)

        await self._app(scope, slow_receive, guarded_send)

    async def _waits(self) -> bool:
        """Wait for the slot of a message; false where that is too far away."""
        decisions = await self._store.take(self._takes)
        delay = max([decision.delay for decision in decisions])
        if delay > 0:
            await sleep(delay)
        return False not in [decision.allowed for decision in decisions]


_GONE: Message = {"type": "websocket.disconnect", "code": TRY_AGAIN_LATER, "reason": _REASON}
