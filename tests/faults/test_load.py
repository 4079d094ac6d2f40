"""Load: an attack on one key, a flood of new keys, and a Redis that freezes meanwhile."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.stores import RedisStore
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.trial import PATIENT, QUOTA, Trial, frozen, hurried, settled, trial

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be frozen, whose calls are counted."""
    with RedisServer() as own:
        yield own


def calls(server: RedisServer) -> int:
    """How often the script was called since the statistics were reset."""
    lines = asked(server, "INFO", "commandstats").decode().splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if "eval" in line)


@asynccontextmanager
async def under_load(tried: Trial, callers: int) -> AsyncIterator[None]:
    """While the block runs, callers with keys of their own take, one take after the other."""
    stopped = False

    async def call(key: str) -> None:
        while not stopped:
            await tried.take(key)
            await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(call(f"caller {number}"))
        yield
        stopped = True


@pytest.mark.parametrize("at_once", [1, 200, 1000])
async def test_an_attack_on_one_refused_key(server: RedisServer, at_once: int) -> None:
    """Five thousand requests make at most two calls to Redis a second, once their first batches are answered."""
    async with trial(server.url, server, outages=0) as tried:
        await tried.take("key", QUOTA.burst)
        asked(server, "CONFIG", "RESETSTAT")
        began = time.monotonic()
        for _ in range(5_000 // at_once):
            decisions = await tried.takes(at_once)
            assert not any(decision.allowed for decision in decisions)
        lasted = time.monotonic() - began
        assert calls(server) <= 20 + 2 * lasted


async def test_a_redis_that_freezes_under_load(server: RedisServer) -> None:
    """All takes are answered by this process, which does not freeze: none but a probe waits for the deadline."""
    async with trial(server.url, server) as tried, under_load(tried, 50):
        await settled(lambda: len(tried.decisions) >= 50)
        server.pause()
        async with hurried():
            await tried.until_degraded()
        before = len(tried.decisions)
        async with asyncio.timeout(PATIENT / 2):
            await settled(lambda: len(tried.decisions) >= before + 5_000)
        during = tried.decisions[before:]
        server.resume()
        await tried.until_back()
        assert not any(decision.allowed and not decision.degraded for decision in during)


async def test_thousands_of_buckets_in_the_outage_ledger(server: RedisServer) -> None:
    """They are charged a few at a time between other takes, so that no deadline passes."""
    async with trial(server.url, server) as tried:
        async with frozen(server):
            await tried.until_degraded()
            await tried.takes(3_000, "key {}")
        await tried.until_back()
        async with under_load(tried, 20):
            await until_charged(tried, [f"key {number}" for number in (*range(0, 3_000, 500), 2_999)])


async def until_charged(tried: Trial, keys: list[str]) -> None:
    """Return when Redis is charged with one unit of each key."""
    for key in keys:
        for _ in range(1_000):
            if (await tried.limiter.peek(key)).remaining == QUOTA.burst - 1:
                break
            await asyncio.sleep(0.01)
        else:
            raise TimeoutError(f"{key} is not charged")


@pytest.mark.long
async def test_a_million_keys(server: RedisServer) -> None:
    """The process needs no more memory for them than for a hundred thousand."""
    async with trial(server.url, server, outages=0) as tried:
        store = tried.limiter.store
        assert isinstance(store, RedisStore)
        before = 0
        for number in range(0, 1_000_000, 1_000):
            if number == 100_000:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            charges = [Charge(QUOTA, f"{number} {each}") for each in range(1_000)]
            assert all(d.allowed for d in await store.take([Take((charge,)) for charge in charges]))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes
