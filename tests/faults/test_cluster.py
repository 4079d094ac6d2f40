"""Faults of a cluster: slots that move under traffic, primaries that are replaced, and missing nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.overriding import until_back
from tests.support.redis_cluster import RedisCluster, asked, has_all_writes, is_primary, slot_of, wait_until
from tests.support.server import HOST
from tests.support.trial import QUOTA, Trial, frozen, require_times_to_live

pytestmark = pytest.mark.anyio


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """Three primaries, the first of which has a replica."""
    with RedisCluster(replicas=1) as own:
        yield own


async def test_a_slot_that_moves_under_traffic(cluster: RedisCluster) -> None:
    """The states move with it, and exactly as many pass as the quota has."""
    key = cluster.keys_on(0)[0]
    source, target, slot = cluster.primaries[0], cluster.primaries[1], slot_of(key)
    tried = Trial.on(cluster.url)
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


async def test_a_primary_that_is_killed(cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    """What this process admits until its replica has taken over is charged there."""
    gone, well = cluster.keys_on(0)[0], cluster.keys_on(1)[0]
    tried = Trial.on(cluster.url)
    async with tried.limiter:
        await tried.takes(8, gone)
        await tried.takes(8, well)
        wait_until(lambda: has_all_writes(cluster.replicas[0], cluster.primaries[0]))
        cluster.primaries[0].kill()
        assert all(d.degraded for d in await tried.takes(7, gone))
        assert not any(d.degraded for d in await tried.takes(7, well))
        wait_until(lambda: is_primary(cluster.replicas[0]))
        await until_back(tried.limiter, gone, 0.0001)
        await tried.takes(30, gone)
        await tried.takes(30, well)
        assert QUOTA.burst - 1 <= tried.admitted(gone) <= QUOTA.burst  # fractions of a unit were taken, too
        assert tried.admitted(well) == QUOTA.burst
    levels = [record.levelname for record in caplog.records]
    assert (levels[0], levels[-1]) == ("ERROR", "WARNING")
    assert len(set(caplog.messages)) == len(levels)  # each node is out once, and back once
    require_times_to_live(cluster.replicas[0], *cluster.primaries[1:])


async def test_a_cluster_with_a_missing_node(cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    """All other nodes refuse to serve: this process decides until the node is back."""
    keys = [cluster.keys_on(at)[0] for at in range(3)]
    tried = Trial.on(cluster.url)
    async with tried.limiter:
        for key in keys:
            await tried.takes(8, key)
        async with frozen(cluster.primaries[2]):
            wait_until(lambda: b"cluster_state:fail" in asked(cluster.primaries[0], "CLUSTER", "INFO"))
            for key in keys:
                assert all(d.degraded for d in await tried.takes(7, key))
        wait_until(lambda: b"cluster_state:ok" in asked(cluster.primaries[0], "CLUSTER", "INFO"))
        for key in keys:
            await until_back(tried.limiter, key, 0.0001)
            await tried.takes(30, key)
            # what the frozen node did later counts twice
            assert QUOTA.burst - 1 - 7 <= tried.admitted(key) <= QUOTA.burst
    levels = [record.levelname for record in caplog.records]
    assert levels.count("ERROR") >= levels.count("WARNING") > 0
