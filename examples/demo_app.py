"""The Starlette example with a header on every answer that names the process: the app that the demo runs."""

from __future__ import annotations

import os

from starlette.types import Message, Receive, Scope, Send

from examples.starlette_app import app as example

WORKER = (b"x-worker", b"%d" % os.getpid())


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Call the example, and add the header to its answers."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], WORKER]}
        await send(message)

    await example(scope, receive, named)
