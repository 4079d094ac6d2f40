"""What a middleware does when the app shuts down."""

from __future__ import annotations

from starlette.types import Message, Receive, Send

from ...hooks import Hooks
from ...stores import Store
from ..delays import SuccessiveTakes


def draining(receive: Receive, hooks: Hooks) -> Receive:
    """Complete the calls of asynchronous hooks before the app shuts down, because they may need what it closes."""

    async def draining_receive() -> Message:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await hooks.aclose()
        return message

    return draining_receive


def closing(send: Send, store: Store, takes: SuccessiveTakes, hooks: Hooks) -> Send:
    """Close the store after the app has shut down, once nothing uses it any more."""

    async def closing_send(message: Message) -> None:
        if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            await takes.aclose()
            await hooks.aclose()
            await store.aclose()
        await send(message)

    return closing_send
