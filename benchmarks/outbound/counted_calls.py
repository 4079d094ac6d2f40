"""Paced calls to a server that counts by itself, in one process or in several.

As a program, its arguments are the URLs of the server and of the store, a quota, a margin, and the number of calls. It
prints ``ready``, and begins when it reads a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from asgi_ratelimit import pace
from tests.support.children import run_together
from tests.support.server import Uvicorn

JITTER = 0.05
"""Callers of one process come within so many seconds of each other, at random."""

AT_ONCE = 60
"""Connections that tasks open before they begin: more than a burst of the tests."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has counted: calls that it served and refused, and seconds from the first to the last one."""

    served: int
    refused: int
    seconds: float


def counts_of(server: Uvicorn) -> Counts:
    """What a server has counted until now."""
    with urlopen(f"{server.url}/counts") as response:  # it is our own server
        return Counts(**json.load(response))


class AsyncClient:
    """A client that costs little, so that its own work adds little jitter: a stack of connections that stay open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._request = f"GET / HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, connections: int) -> None:
        """Open connections before they are used."""
        for _ in range(connections):
            self._idle.append(await asyncio.open_connection(self._host, self._port))

    async def get(self) -> None:
        """Send a request, and read its answer."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0]
        await reader.readexactly(int(length))
        self._idle.append((reader, writer))

    async def aclose(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def call_async(url: str, calls: int, paced: Callable[[Any], Any], work: float = 0.0) -> None:
    """Make calls in tasks; each keeps the event loop busy for ``work`` seconds when it leaves."""
    client = AsyncClient(url)
    await client.open(AT_ONCE)

    async def send() -> None:
        time.sleep(work)  # noqa: ASYNC251  # it is what the test is about
        await client.get()

    call: Callable[[], Awaitable[None]] = paced(send)

    async def caller() -> None:
        await asyncio.sleep(random.uniform(0.0, JITTER))
        await call()

    await asyncio.gather(*[caller() for _ in range(calls)])
    await client.aclose()


def call_from_processes(server: Uvicorn, store: str, quota: str, margin: float, calls: int, processes: int) -> None:
    """Make calls in several processes that share a store."""
    arguments = (server.url, store, quota, str(margin), str(calls // processes))
    commands = [("-m", "benchmarks.outbound.counted_calls", *arguments)] * processes
    run_together(commands, "begin", within=600)


def main(url: str, store: str, quota: str, margin: str, calls: str) -> None:
    """Make the calls of one process."""
    paced = pace(quota, store=store, name="calls", margin=float(margin))
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(call_async(url, int(calls), paced))


if __name__ == "__main__":
    main(*sys.argv[1:])
