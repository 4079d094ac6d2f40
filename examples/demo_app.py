"""The Starlette example, with the process that answered named on every answer: what the demo talks to."""

from __future__ import annotations

import os

from starlette.types import Message, Receive, Scope, Send

from examples.starlette_app import app as example

WORKER = (b"x-worker", b"%d" % os.getpid())


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Pass everything on, and add a header to the answers."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], WORKER]}
        await send(message)

    await example(scope, receive, named)
