"""Load: an attack on one key, a flood of new keys, and a Redis that freezes meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.support.redis_cluster import asked, script_calls
from tests.support.redis_server import RedisServer
from tests.support.trial import QUOTA, trial

pytestmark = pytest.mark.anyio


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
        assert script_calls(server) <= 20 + 2 * lasted
