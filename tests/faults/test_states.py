"""States that are lost or late, and clocks that jump: how much is admitted at most."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.proxy import Proxy
from tests.support.redis_cluster import asked, has_all_writes, is_primary, wait_until
from tests.support.redis_server import RedisServer
from tests.support.server import HOST
from tests.support.trial import PATIENT, QUOTA, Trial, frozen, trial

pytestmark = pytest.mark.anyio

KINDS = [QUOTA, FixedWindow(20, 86_400), RollingWindow(20, 86_400)]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be frozen and stopped."""
    with RedisServer() as own:
        yield own


@pytest.fixture
def replica(server: RedisServer) -> Iterator[RedisServer]:
    """A replica of it."""
    with RedisServer("--replicaof", HOST, str(server.port)) as own:
        wait_until(lambda: has_all_writes(own, server))
        yield own


# One quota, not two


@pytest.mark.parametrize("quota", KINDS, ids=lambda quota: type(quota).__name__)
async def test_an_outage_is_no_second_quota(server: RedisServer, quota: Quota) -> None:
    """What this process admits counts when Redis is back."""
    async with trial(server.url, server, quota=quota) as tried:
        await tried.takes(8)
        async with frozen(server):
            await tried.until_degraded()
            await tried.takes(7)
            assert tried.admitted() == 15
        await tried.until_back()
        await tried.takes(30)
        assert tried.admitted() == 20
        assert (await tried.limiter.peek("key")).remaining == 0


async def test_a_reset_is_final(server: RedisServer) -> None:
    """An outage does not bring back what was charged before a reset, in Redis or in an earlier outage."""
    async with trial(server.url, server, outages=2) as tried:
        for _ in range(2):
            await tried.takes(20)
            await tried.limiter.reset("key")
            async with frozen(server):
                await tried.until_degraded()
                assert all(d.allowed for d in await tried.takes(20))
            await tried.until_back()
            await tried.limiter.reset("key")


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


# Another primary


async def test_a_failover_under_load(server: RedisServer, replica: RedisServer) -> None:
    """``FAILOVER`` moves all states; the old primary is read-only, and the store connects to the new one."""
    async with Proxy(server.port) as proxy, trial(proxy.url, server, replica) as tried:
        await tried.takes(8)
        asked(server, "FAILOVER", "TO", HOST, replica.port)
        wait_until(lambda: is_primary(replica) and not is_primary(server))
        proxy.target = replica.port
        assert (await tried.take()).degraded
        await tried.until_back()
        await tried.takes(30)
        assert tried.admitted() == 20
        assert b"rl:default:per-day:{key}" in asked(replica, "KEYS", "*")


# Clocks


@pytest.mark.parametrize("quota", [TokenBucket(20, 60), FixedWindow(20, 60), RollingWindow(20, 60)], ids=repr)
@pytest.mark.parametrize("jump", [-3600.0, -30.0, -1.0, 1.0, 30.0, 3600.0])
async def test_a_server_clock_that_jumps(redis_url: str, quota: Quota, jump: float) -> None:
    """Backward it gives nothing, and locks out for at most two periods; forward it is as if time had passed."""
    clock = SteppedClock()
    async with Limiter(quota, store=RedisStore(redis_url, timeout=PATIENT, clock=clock)) as limiter:
        assert (await limiter.rate_limit("key", 20)).allowed
        clock.advance(jump)
        freed = min(max(jump, 0.0) / 60, 1.0) * 20
        assert sum([(await limiter.rate_limit("key")).allowed for _ in range(30)]) <= max(freed, 20 * (jump > 60))
        refused = await limiter.rate_limit("key", 20)
        assert refused.retry_after <= 2 * quota.period
        clock.advance(2 * quota.period)
        assert (await limiter.rate_limit("key", 20)).allowed


async def test_client_clocks_that_differ(
    redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not used: a process that is half a minute ahead or behind gets the same as all others."""
    genuine = time.time_ns
    quota = TokenBucket(10, 60)
    async with trial(redis_url, redis_server, outages=0, quota=quota) as tried:
        began = time.monotonic()
        for skew in (0, 30, -30, 3600, -3600):
            monkeypatch.setattr(time, "time_ns", lambda skew=skew: genuine() + skew * 10**9)
            await tried.takes(20)
        lasted = time.monotonic() - began
        assert 10 <= tried.admitted() <= 10 + 1 + lasted * 10 / 60
        monkeypatch.undo()
