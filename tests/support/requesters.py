"""Programs that send paced requests to a server, over one Redis; for tests of several at once.

As a program, its arguments are the package of the client, ``async`` or ``sync``, the URLs of the server and of Redis, a
quota, and seconds. It prints ``ready``, begins when it reads a line, ends so many seconds after its first answer, and
prints the status and the Unix time of each answer.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgi_ratelimit import PacedTransport, PaceTimeout, RedisStore
from asgi_ratelimit.waiting.drivers import background_loop
from tests.support.children import run_together

KINDS = (("httpx", "async"), ("httpx2", "sync"), ("httpx2", "async"))
"""The clients of the three processes."""

UNDER_WAY = 10


def run_requesters(server: str, redis: str, quota: str, seconds: float) -> list[tuple[int, float]]:
    """The status and the time of each answer that three processes receive, each ``seconds`` long."""
    commands = [("-m", "tests.support.requesters", *kind, server, redis, quota, str(seconds)) for kind in KINDS]
    outputs = run_together(commands, "begin", within=seconds + 60)
    lines = [line.split() for output in outputs for line in output.splitlines()]
    return [(int(status), float(at)) for status, at in lines]


class Requesters:
    """The requests of one process, and their answers."""

    def __init__(self, package: str, server: str, redis: str, quota: str, seconds: float) -> None:
        self.package = importlib.import_module(package)
        self.server = server
        self.store = RedisStore(redis, timeout=30, on_error="deny")
        self.quota = quota
        self.answers: list[tuple[int, float]] = []
        self.seconds = seconds
        self.end = math.inf

    def transport(self, inner: Any) -> PacedTransport:
        """A paced transport over the shared Redis."""
        return PacedTransport(inner, self.quota, store=self.store)

    @property
    def extensions(self) -> dict[str, Any]:
        """The options of a request, which may wait until the end."""
        return {"pace": {"max_delay": min(max(self.end - time.time(), 0.0), 60.0)}}

    def add(self, status: int) -> None:
        """Add an answer that has come; the first one says when the end is."""
        now = time.time()
        self.end = min(self.end, now + self.seconds)
        self.answers.append((status, now))

    async def in_tasks(self) -> None:
        """Send from tasks."""
        transport = self.transport(self.package.AsyncHTTPTransport())
        async with self.package.AsyncClient(transport=transport) as client:
            await asyncio.gather(*[self._task(client) for _ in range(UNDER_WAY)])
        await self.store.aclose()

    async def _task(self, client: Any) -> None:
        try:
            while time.time() < self.end:
                self.add((await client.get(self.server, extensions=self.extensions)).status_code)
        except PaceTimeout:
            return

    def in_threads(self) -> None:
        """Send from threads."""
        transport = self.transport(self.package.HTTPTransport())
        with self.package.Client(transport=transport) as client, ThreadPoolExecutor(UNDER_WAY) as pool:
            list(pool.map(self._thread, [client] * UNDER_WAY))
        background_loop.run(self.store.aclose())

    def _thread(self, client: Any) -> None:
        try:
            while time.time() < self.end:
                self.add(client.get(self.server, extensions=self.extensions).status_code)
        except PaceTimeout:
            return


def main(package: str, kind: str, server: str, redis: str, quota: str, seconds: str) -> None:
    """Send all requests of this process, and print the answers."""
    requesters = Requesters(package, server, redis, quota, float(seconds))
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "async":
        asyncio.run(requesters.in_tasks())
    else:
        requesters.in_threads()
    for status, at in requesters.answers:
        print(status, repr(at))


if __name__ == "__main__":
    main(*sys.argv[1:])
