"""Paced calls to a server that counts by itself, with and without ``async``, in one process or in several.

As a program, its arguments are ``async`` or ``sync``, the URLs of the server and of the store, a quota, a margin, and
the number of calls. It prints ``ready``, and begins when it reads a line.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from asgi_ratelimit import pace
from tests.support.children import run_together
from tests.support.server import Uvicorn

JITTER = 0.05
"""Callers of one process come within so many seconds of each other, at random."""

AT_ONCE = 60
"""The most connections, and the threads without ``async``: more than a burst of the tests."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has counted: calls that it served and refused, and seconds from the first to the last one."""

    served: int
    refused: int
    seconds: float


def counts_of(server: Uvicorn) -> Counts:
    """What a server has counted until now."""
    return Counts(**httpx.get(f"{server.url}/counts").json())


async def call_async(url: str, calls: int, paced: Callable[[Any], Any], work: float = 0.0) -> None:
    """Make calls in tasks; each keeps the event loop busy for ``work`` seconds when it leaves."""
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def send() -> None:
            time.sleep(work)  # noqa: ASYNC251  # it is what the test is about
            await client.get(url)

        await asyncio.gather(*[client.get(f"{url}/counts") for _ in range(AT_ONCE)])  # open the connections
        call: Callable[[], Awaitable[None]] = paced(send)

        async def caller() -> None:
            await asyncio.sleep(random.uniform(0.0, JITTER))
            await call()

        await asyncio.gather(*[caller() for _ in range(calls)])


def call_sync(url: str, calls: int, paced: Callable[[Any], Any]) -> None:
    """Make calls in threads."""
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    with httpx.Client(limits=limits, timeout=60, trust_env=False) as client:
        call = paced(lambda: client.get(url))
        client.get(f"{url}/counts")

        def caller(_: int) -> None:
            time.sleep(random.uniform(0.0, JITTER))
            call()

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(caller, range(calls)))


def call_from_processes(server: Uvicorn, store: str, quota: str, margin: float, calls: int, processes: int) -> None:
    """Make calls in several processes that share a store."""
    arguments = (server.url, store, quota, str(margin), str(calls // processes))
    commands = [("-m", "tests.stand_ins.counted_calls", "async", *arguments)] * processes
    run_together(commands, "begin", within=600)


def main(kind: str, url: str, store: str, quota: str, margin: str, calls: str) -> None:
    """Make the calls of one process."""
    paced = pace(quota, store=store, name="calls", margin=float(margin))
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "async":
        asyncio.run(call_async(url, int(calls), paced))
    else:
        call_sync(url, int(calls), paced)


if __name__ == "__main__":
    main(*sys.argv[1:])
