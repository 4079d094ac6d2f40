"""A child process with one app in it: ``python -m benchmarks.processes.worker PEER STORE URL``.

It reads commands from stdin and writes answers to stdout, a line of JSON each. With a process for each subject, all of
a subject's threads are measured, and one that hangs or breaks stops no other. The event loop is uvloop's, as behind
uvicorn.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from ..apps.shapes import Case, build
from ..subject import PEERS, Quota, Where
from .direct_client import DirectClient
from .lifespan import lifespan

Answer = dict[str, Any]
HOST = "127.0.0.1"


class Worker:
    """The commands for one peer over one store."""

    def __init__(self, peer: str, where: Where, url: str) -> None:
        self._peer = peer
        self._where = where
        self._url = url
        self._running = AsyncExitStack()

    async def app(self, limit: int, period: Any, shape: str) -> Answer:
        """Build an app with this quota, in place of the last one; ``burst``, ``visit`` and ``flood`` use it.

        A ``shape`` of use has several quotas of such a size.
        """
        app = await self._new_app(limit, period, shape)
        self._client = DirectClient(app, await self._running.enter_async_context(lifespan(app)))
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # full collections skip imported modules and the app, but not what is stored of clients later
        return {}

    async def listen(self, limit: int, period: Any, shape: str) -> Answer:
        """Serve such an app by uvicorn; return its port."""
        app = await self._new_app(limit, period, shape)
        server = uvicorn.Server(uvicorn.Config(app, HOST, port=0, access_log=False, log_level="warning"))
        serving = asyncio.create_task(server.serve())
        self._running.push_async_callback(_stop, server, serving)
        while not server.started:
            if serving.done():
                raise RuntimeError("uvicorn did not start")
            await asyncio.sleep(0.01)
        return {"port": server.servers[0].sockets[0].getsockname()[1]}

    async def burst(self, **arguments: Any) -> Answer:
        return await self._client.burst(**arguments)

    async def visit(self, **arguments: Any) -> Answer:
        return await self._client.visit(**arguments)

    async def flood(self, **arguments: Any) -> Answer:
        return await self._client.flood(**arguments)

    async def cpu(self) -> Answer:
        """Seconds of CPU that this process has used."""
        return {"cpu": time.process_time()}

    async def answer(self, do: str, **arguments: Any) -> Answer:
        """Run a command; return its answer, or the error that it raised."""
        commands: dict[str, Callable[..., Any]] = {
            "app": self.app,
            "listen": self.listen,
            "burst": self.burst,
            "visit": self.visit,
            "flood": self.flood,
            "cpu": self.cpu,
        }
        try:
            answer: Answer = await commands[do](**arguments)
        except Exception as error:  # noqa: BLE001  # whatever a peer raises is a result
            return {"error": f"{type(error).__name__}: {error}"[:120]}
        return answer

    async def _new_app(self, limit: int, period: Any, shape: str) -> ASGIApp:
        await self._running.aclose()
        if shape:
            return build(self._peer, Case(shape, self._where, self._url, limit))
        return PEERS[self._peer].build(self._where, self._url, Quota(limit, period))


async def _stop(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await serving


async def main(peer: str, where: Any, url: str) -> None:
    """Answer commands until stdin ends. What the app prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(peer, where, url)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await worker.answer(**json.loads(line))), file=out)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
