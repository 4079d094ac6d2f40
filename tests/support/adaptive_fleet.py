"""One process of a fleet: callers of a stand-in for Discord, over adaptive transports that share a Redis.

As a program, its arguments are the URLs of the server and of Redis, and JSON with ``channels``, ``callers`` of each
channel, ``seconds``, a ``quota``, and the ``timeout`` of Redis. It prints ``ready``, and begins when it reads a line.
When ``seconds`` are over, or, without them, when it reads another line, each caller sends one request more. It has to
get the answers to that one, and to the one under way, within ``last`` seconds. Then the program prints JSON: how many
answers had each status, how many requests failed, and how many callers were stuck.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from asgi_ratelimit import AdaptiveTransport, RedisStore
from asgi_ratelimit.profiles import discord

# How long a caller rests after a request that failed.
AFTER_FAILURE_S = 0.05


@dataclass
class Report:
    """What the callers of a process have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    stuck: int = 0


def command(server: str, redis: str, **options: Any) -> list[str]:
    """The program of one process."""
    return ["-m", "tests.support.adaptive_fleet", server, redis, json.dumps(options)]


def report_of(output: str) -> Report:
    """The report that a program has printed."""
    found = json.loads(output.splitlines()[-1])
    return Report(Counter(found["statuses"]), found["failed"], found["stuck"])


class Callers:
    """The callers of one process."""

    def __init__(self, server: str, client: httpx.AsyncClient, seconds: float | None, last_s: float) -> None:
        self.server, self.client = server, client
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.last_s = last_s
        self.report = Report()

    async def read_end(self) -> None:
        """Let the end be now, as soon as a line is read."""
        await asyncio.to_thread(sys.stdin.readline)
        self.end = time.monotonic()

    async def call(self, channel: int) -> None:
        """Send requests until the end, and one more; neither the one under way then nor that one may take long."""
        while time.monotonic() < self.end:
            await self.send(channel)
        has_been_stuck = time.monotonic() > self.end + self.last_s
        try:
            await asyncio.wait_for(self.send(channel), self.last_s)
        except TimeoutError:
            has_been_stuck = True
        self.report.stuck += has_been_stuck

    async def send(self, channel: int) -> None:
        """Send one request."""
        try:
            answer = await self.client.get(f"{self.server}/channels/{channel}/messages")
        except httpx.TransportError:
            self.report.failed += 1
            await asyncio.sleep(AFTER_FAILURE_S)
        else:
            self.report.statuses[str(answer.status_code)] += 1


async def main(server: str, redis: str, options: dict[str, Any]) -> None:
    """Run the callers of one process."""
    store = RedisStore(redis, timeout=options.get("timeout", 1.0))
    transport = AdaptiveTransport(
        httpx.AsyncHTTPTransport(limits=httpx.Limits(keepalive_expiry=2.0)),
        profile=replace(discord, quota=None),
        quota=options.get("quota"),
        store=store,
    )
    async with httpx.AsyncClient(transport=transport, timeout=30) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        callers = Callers(server, client, options.get("seconds"), options["last"])
        channels = [channel for channel in range(options["channels"]) for _ in range(options["callers"])]
        calls = list(map(callers.call, channels))
        await asyncio.gather(*calls, *([] if "seconds" in options else [callers.read_end()]))
    await store.aclose()
    report = callers.report
    print(json.dumps({"statuses": report.statuses, "failed": report.failed, "stuck": report.stuck}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
