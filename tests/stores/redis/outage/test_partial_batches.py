"""A batch of which Redis has carried out a part when the connection breaks: each of its takes counts once."""

from __future__ import annotations

import pytest
from asgi_ratelimit.stores.redis.connection.script_calls import SCRIPT_SHA

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.quotas import FixedWindow
from asgi_ratelimit.stores import RedisStore
from tests.stores.redis.outage.test_settling import nonsense
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

ENTRIES = 200
"""More than are repaid together, so that the outage ledger still has some when the takes come."""
QUOTAS = [FixedWindow(100, 86_400 + number, name=f"window {number}") for number in range(20)]
TAKES = 20
"""So many takes of all quotas are too much work for one call of the script."""


class CuttingProxy(Proxy):
    """Closes the connection instead of passing on script call number ``cut`` of those on the keys of the batch."""

    calls = 0
    cut = 0

    async def _request(self, data: bytes) -> bytes:
        if SCRIPT_SHA.encode() in data and b"{key-" in data:
            self.calls += 1
            if self.calls == self.cut:
                raise ConnectionResetError
        return data


def take_of(key: str) -> Take:
    return Take(tuple([Charge(quota, key, 1, "name") for quota in QUOTAS]))


async def remaining(server: RedisServer, keys: list[str]) -> list[set[float]]:
    """What is left in the buckets of each key."""
    store = RedisStore(server.url, timeout=30)
    foreseen = [await store.peek(take_of(key)) for key in keys]
    await store.aclose()
    return [{state.remaining for state in each.states} for each in foreseen]


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_a_batch_that_breaks_off_while_entries_are_left(redis_server: RedisServer, cut: int) -> None:
    """What Redis has carried out is answered; only the rest is decided here, and charged afterwards."""
    redis_server.flush()
    keys = [f"key-{number}" for number in range(TAKES)]
    async with CuttingProxy(redis_server.port) as proxy:
        store = RedisStore(proxy.url, timeout=30)
        proxy.mangle = nonsense
        for number in range(ENTRIES):
            (decision,) = await store.take([Take((Charge(QUOTAS[0], f"entry {number}", 1, "name"),))])
            assert decision.degraded
        proxy.mangle = bytes
        while (await store.take([Take((Charge(QUOTAS[0], "probe", 1e-6, "name"),))]))[0].degraded:
            pass
        proxy.cut = cut
        decisions = await store.take([take_of(key) for key in keys])
        while (await store.take([Take((Charge(QUOTAS[0], "probe", 1e-6, "name"),))]))[0].degraded:
            pass
        await store.aclose()
    degraded = [decision.degraded for decision in decisions]
    assert degraded == sorted(degraded)
    assert degraded[-1]
    assert degraded[0] == (cut == 1)
    assert await remaining(redis_server, keys) == [{99}] * TAKES
