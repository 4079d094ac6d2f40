"""Chaos: several processes share quotas without refill, and the line of each of them to Redis flaps."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from asgi_ratelimit.stores.redis.scan import Scan
from tests.support.chaos import LIMIT, TIMEOUT
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

PROCESSES = 4
CALM_WITHIN = 60.0


@dataclass
class Chaos:
    """What came of a run: by key, what was admitted and what Redis has been charged with."""

    admitted: Counter[str]
    charged: Counter[str]
    degraded: int


# Nothing but a cut; no server; answers that are late, slow, lost, garbled, or cut short.
FAULTS: list[Callable[[Proxy], None]] = [
    lambda proxy: None,
    lambda proxy: setattr(proxy, "target", 1),
    lambda proxy: setattr(proxy, "delay", 2 * TIMEOUT),
    lambda proxy: setattr(proxy, "delay", TIMEOUT / 10),
    lambda proxy: setattr(proxy, "mangle", lambda answer: b""),
    lambda proxy: setattr(proxy, "mangle", lambda answer: b":5\r\n" if answer.startswith(b"$") else answer),
    lambda proxy: setattr(proxy, "mangle", lambda answer: answer[: len(answer) // 2]),
]


async def flap(proxy: Proxy, target: int, chance: random.Random) -> None:
    """One fault after the other, each for a part of a second, mostly with a cut, and with calm between them."""
    while True:
        chance.choice(FAULTS)(proxy)
        if chance.random() < 0.7:
            proxy.disconnect()
        await asyncio.sleep(chance.random() * 0.4)
        calm(proxy, target)
        await asyncio.sleep(chance.random() * 0.4)


def calm(proxy: Proxy, target: int) -> None:
    proxy.target, proxy.delay, proxy.mangle = target, 0.0, bytes


async def run(server: RedisServer, seconds: float, keys: int, kind: str, rate: float) -> Chaos:
    """Chaos for so long, and then calm until all is repaid. ``rate`` is that of the takes of one process."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(server.port)) for _ in range(PROCESSES)]
        children = [child_of(proxy, number, keys, kind, rate) for number, proxy in enumerate(proxies)]
        for child in children:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
        lines = enumerate(proxies)
        flapping = [asyncio.create_task(flap(proxy, server.port, random.Random(number))) for number, proxy in lines]
        await asyncio.sleep(seconds)
        for each, proxy in zip(flapping, proxies):
            each.cancel()
            calm(proxy, server.port)
        ends = [asyncio.to_thread(child.communicate, "stop\n", CALM_WITHIN) for child in children]
        results = [json.loads(output) for output, _ in await asyncio.gather(*ends)]
        assert [child.returncode for child in children] == [0] * PROCESSES
    admitted: Counter[str] = Counter()
    for result in results:
        admitted.update(result["admitted"])
    return Chaos(admitted, await charged(server), sum(result["degraded"] for result in results))


def child_of(proxy: Proxy, number: int, keys: int, kind: str, rate: float) -> subprocess.Popen[str]:
    arguments = [str(each) for each in (number, PROCESSES, keys, kind, rate)]
    command = [sys.executable, "-W", "error", "-m", "tests.support.chaos", proxy.url, *arguments]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=null, text=True)


async def charged(server: RedisServer) -> Counter[str]:
    """What Redis has been charged with, by key."""
    return Counter({each.key: round(each.used) for each in await Scan(server.url).buckets("default", most=10**7)})


def require_equal(chaos: Chaos) -> None:
    """Redis has been charged with all that was admitted, and no key has had more than the documented share above 50.

    What it carried out without an answer counts twice.
    """
    assert {key: n for key, n in chaos.admitted.items() if n > chaos.charged[key]} == {}
    assert max(chaos.admitted.values()) <= LIMIT + PROCESSES * (LIMIT // PROCESSES)


LONG = pytest.mark.long


@pytest.mark.parametrize("kind", ["fixed", pytest.param("bucket", marks=LONG), pytest.param("rolling", marks=LONG)])
async def test_some_seconds(server: RedisServer, kind: str) -> None:
    """A scaled version of the test below, in which every key is used up."""
    chaos = await run(server, 8, keys=20, kind=kind, rate=80)
    require_equal(chaos)
    assert chaos.degraded > 50
    assert len([key for key, units in chaos.admitted.items() if units >= LIMIT - 5]) == 20
