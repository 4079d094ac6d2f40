"""Faults of a cluster: slots that move under traffic, primaries that are replaced, a cluster that is not whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.support.redis_cluster import RedisCluster, asked, is_in_step, is_primary, wait_until
from tests.support.server import HOST
from tests.support.trial import QUOTA, Trial, require_times_to_live

pytestmark = pytest.mark.anyio


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """Three primaries, the first of which has a replica."""
    with RedisCluster(replicas=1) as own:
        yield own


def key_on(cluster: RedisCluster, at: int) -> str:
    """A key of one of the primaries."""
    return next(key for key in map(str, range(1_000)) if cluster.owner(slot_of(key)) is cluster.primaries[at])


def slot_of(key: str) -> int:
    return key_slot(f"{{{key}}}".encode())


async def until_back(tried: Trial, key: str) -> None:
    """Return when takes of a key are decided by the cluster again; each of them costs next to nothing."""
    for _ in range(1_000):
        if not (await tried.limiter.rate_limit(key, 0.0001)).degraded:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError("the cluster does not come back")


async def test_a_slot_that_moves_under_traffic(cluster: RedisCluster) -> None:
    """With all that it knows, and exactly as many pass as the quota has."""
    key = key_on(cluster, 0)
    source, target, slot = cluster.primaries[0], cluster.primaries[1], slot_of(key)
    tried = Trial.on(cluster.url, timeout=30)
    async with tried.limiter:
        await tried.takes(5, key)
        cluster.begin_to_move(slot, target)
        await tried.takes(5, key)
        moving = asyncio.create_task(tried.takes(5, key))
        await asyncio.sleep(0)
        for name in asked(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            asked(source, "MIGRATE", HOST, target.port, name, 0, 5_000)
        await moving
        await tried.takes(3, key)
        cluster.move(slot, target)
        await tried.takes(30, key)
    assert tried.admitted(key) == QUOTA.burst
    assert not any(d.degraded for d in tried.decisions)
    require_times_to_live(*cluster.primaries)


async def test_several_quotas_of_a_slot_that_moves(cluster: RedisCluster) -> None:
    """A cluster cannot decide on several keys in the middle of it, so it is decided here, and charged there later."""
    key, other = key_on(cluster, 0), key_on(cluster, 1)
    tried = Trial.on(cluster.url, quota=(QUOTA, TokenBucket(1_000, 3_600)), timeout=30)
    async with tried.limiter:
        await tried.take(other)
        cluster.begin_to_move(slot_of(key), cluster.primaries[1])
        assert all(d.degraded for d in await tried.takes(7, key))
        cluster.move(slot_of(key), cluster.primaries[1])
        await until_back(tried, key)
        await until_charged(tried)
        await tried.takes(30, key)
        assert tried.admitted(key) in (QUOTA.burst - 1, QUOTA.burst)
    require_times_to_live(*cluster.primaries)


async def until_charged(tried: Trial) -> None:
    """Return when the cluster has been told of all that was decided here; other takes go on meanwhile."""
    store = tried.limiter.store
    assert isinstance(store, RedisStore)
    for number in range(1_000):
        if not store._failover.debts:
            return
        await tried.take(f"another {number}")
        await asyncio.sleep(0.02)
    raise TimeoutError("it is not told")


async def test_a_primary_that_is_killed(cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    """What is let through until its replica has taken over is charged to that one."""
    gone, well = key_on(cluster, 0), key_on(cluster, 1)
    tried = Trial.on(cluster.url)
    async with tried.limiter:
        await tried.takes(8, gone)
        await tried.takes(8, well)
        assert asked(cluster.primaries[0], "WAIT", 1, 5_000) == 1
        cluster.primaries[0].kill()
        assert all(d.degraded for d in await tried.takes(7, gone))
        assert not any(d.degraded for d in await tried.takes(7, well))
        wait_until(lambda: is_primary(cluster.replicas[0]))
        await until_back(tried, gone)
        await tried.takes(30, gone)
        await tried.takes(30, well)
        assert tried.admitted(gone) in (
            QUOTA.burst - 1,
            QUOTA.burst,
        )  # there was something less than one unit taken, too
        assert tried.admitted(well) == QUOTA.burst
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    require_times_to_live(cluster.replicas[0], *cluster.primaries[1:])


async def test_a_replica_that_takes_over_by_force(cluster: RedisCluster) -> None:
    """Nobody asks the old primary, which says where the slots are now; nothing is decided here for long."""
    key = key_on(cluster, 0)
    tried = Trial.on(cluster.url, timeout=2)
    async with tried.limiter:
        await tried.takes(8, key)
        wait_until(lambda: is_in_step(cluster.replicas[0]))
        asked(cluster.primaries[0], "WAIT", 1, 5_000)
        asked(cluster.replicas[0], "CLUSTER", "FAILOVER", "TAKEOVER")
        for _ in range(20):
            await tried.take(key, 0.05)
            await asyncio.sleep(0.01)
        wait_until(lambda: not is_primary(cluster.primaries[0]))
        await until_back(tried, key)
        await tried.takes(30, key)
    used = sum(d.granted for d in tried.decisions)
    assert used <= QUOTA.burst + 1


async def test_a_cluster_that_is_not_whole(cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Where a part is missing, all others refuse to serve: all is decided here until it is there again."""
    keys = [key_on(cluster, at) for at in range(3)]
    tried = Trial.on(cluster.url)
    async with tried.limiter:
        for key in keys:
            await tried.takes(8, key)
        cluster.primaries[2].pause()
        wait_until(lambda: b"cluster_state:fail" in asked(cluster.primaries[0], "CLUSTER", "INFO"))
        for key in keys:
            assert all(d.degraded for d in await tried.takes(7, key))
        cluster.primaries[2].resume()
        wait_until(lambda: b"cluster_state:ok" in asked(cluster.primaries[0], "CLUSTER", "INFO"))
        for key in keys:
            await until_back(tried, key)
        for key in keys:
            await tried.takes(30, key)
            assert (
                QUOTA.burst - 1 - 7 <= tried.admitted(key) <= QUOTA.burst
            )  # what the frozen one did later counts twice
    levels = [record.levelname for record in caplog.records]
    assert levels.count("ERROR") == levels.count("WARNING")
