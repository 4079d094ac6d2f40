"""Chaos: several processes share quotas without refill, and the line of each of them to Redis flaps."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from redis import Redis

from asgi_ratelimit.algorithms import unpack, used
from tests.support.chaos import LIMIT, QUOTAS, TIMEOUT
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT
from tests.support.trial import require_times_to_live

pytestmark = pytest.mark.anyio

PROCESSES = 4
CALM_WITHIN = 60.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test."""
    with RedisServer() as own:
        yield own


@dataclass
class Chaos:
    """What came of a run: by key, what was admitted and what Redis has been charged with."""

    admitted: Counter[str]
    charged: Counter[str]
    degraded: int
    connections: int


async def flap(proxy: Proxy, target: int, chance: random.Random) -> None:
    """Cut, stall, refuse, and lose or garble answers, a fraction of a second each, with calm between; until cancelled."""
    faults = [
        lambda: None,
        lambda: setattr(proxy, "target", 1),
        lambda: setattr(proxy, "delay", 2 * TIMEOUT),
        lambda: setattr(proxy, "delay", 0.02),
        lambda: setattr(proxy, "mangle", lambda answer: b""),
        lambda: setattr(proxy, "mangle", lambda answer: b":5\r\n" if answer.startswith(b"*") else answer),
        lambda: setattr(proxy, "mangle", lambda answer: answer[: len(answer) // 2]),
    ]
    while True:
        chance.choice(faults)()
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
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
        flapping = [asyncio.create_task(flap(proxy, server.port, random.Random(number))) for number, proxy in enumerate(proxies)]
        await asyncio.sleep(seconds)
        for each, proxy in zip(flapping, proxies):
            each.cancel()
            calm(proxy, server.port)
        outputs = await asyncio.gather(*[asyncio.to_thread(child.communicate, "stop\n", CALM_WITHIN) for child in children])
        assert [child.returncode for child in children] == [0] * PROCESSES
        results = [json.loads(output) for output, _ in outputs]
        admitted: Counter[str] = Counter()
        for result in results:
            admitted.update(result["admitted"])
        degraded = sum(result["degraded"] for result in results)
        return Chaos(admitted, charged(server, kind), degraded, sum(proxy.connections for proxy in proxies))


def child_of(proxy: Proxy, number: int, keys: int, kind: str, rate: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.support.chaos", proxy.url]
    arguments = [str(each) for each in (number, PROCESSES, keys, kind, rate)]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *arguments], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def charged(server: RedisServer, kind: str) -> Counter[str]:
    """What Redis has been charged with, by key."""
    units: Counter[str] = Counter()
    with Redis.from_url(server.url) as client:
        for name in client.keys("rl:default:*}"):
            state = unpack(QUOTAS[kind], client.get(name))
            key = name.decode().partition("{")[2].removesuffix("}")
            if key.startswith("key-") and state is not None:
                units[key] = round(used(QUOTAS[kind], state, time.time() * 1e6))
    return units


@pytest.mark.parametrize("kind", QUOTAS)
async def test_some_seconds(server: RedisServer, kind: str) -> None:
    """A scaled version of the test below."""
    chaos = await run(server, 8, keys=20, kind=kind, rate=80)
    print({key: (n, chaos.charged[key]) for key, n in chaos.admitted.items()}, chaos.degraded, chaos.connections)
    assert {key: n for key, n in chaos.admitted.items() if n != chaos.charged[key]} == {}
    assert max(chaos.admitted.values()) <= LIMIT + PROCESSES * (LIMIT // PROCESSES)
    assert chaos.degraded > 100
