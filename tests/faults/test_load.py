"""Load: an attack on one key, a flood of new keys, and a Redis that freezes meanwhile."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import pytest

from asgi_ratelimit import RedisStore
from asgi_ratelimit.decision import Charge, Take
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.trial import QUOTA, trial

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
