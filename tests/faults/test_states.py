"""States that are lost or late, and clocks that jump: how much is admitted at most."""

from __future__ import annotations

import pytest

from asgi_ratelimit import FixedWindow, Quota, RollingWindow
from tests.support.redis_server import RedisServer
from tests.support.trial import QUOTA, Trial, frozen, trial

pytestmark = pytest.mark.anyio

KINDS = [QUOTA, FixedWindow(20, 86_400), RollingWindow(20, 86_400)]


async def test_replicas_have_a_share_each(server: RedisServer) -> None:
    """Together they admit about what Redis would, and Redis is charged with all of it."""
    trials = [Trial.on(server.url, replicas=4) for _ in range(4)]
    for each in trials:
        await each.takes(1)
    async with frozen(server):
        for each in trials:
            await each.until_degraded()
            await each.takes(10)
        assert sum(each.admitted() for each in trials) == 4 + 20
    for each in trials:
        await each.until_back()
    for each in trials:
        await each.takes(10)
    assert sum(each.admitted() for each in trials) == 4 + 20
    for each in trials:
        await each.limiter.aclose()


@pytest.mark.parametrize("quota", KINDS, ids=lambda quota: type(quota).__name__)
async def test_a_refund_while_redis_is_out(server: RedisServer, quota: Quota) -> None:
    """It raises nothing, and is carried out once, when Redis is back."""
    async with trial(server.url, server, quota=quota) as tried:
        decisions = await tried.takes(10)
        async with frozen(server):
            await tried.until_degraded()
            for decision in decisions[:6]:
                await tried.limiter.refund(decision)
            for decision in decisions[6:8]:
                await tried.limiter.settle(decision, 3)
        await tried.until_back()
        for decision in decisions[:6]:
            await tried.limiter.refund(decision)
        assert 20 - 8 - 1 <= (await tried.limiter.peek("key")).remaining <= 20 - 8
