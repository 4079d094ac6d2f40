"""The rights of its own user that a store needs on a shared Redis, as in docs/redis.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis.crc import key_slot

from asgi_ratelimit import Limiter, RedisStore
from tests.support.redis_cluster import RedisCluster, asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


# The rights that docs/redis.md lists.
LEAST_RIGHTS = ("resetchannels", "~rl:*", "+evalsha", "+eval", "+time", "+get", "+getrange", "+set", "+pttl", "+del")


@pytest.mark.parametrize(("database", "more"), [(0, ()), (1, ("+select",))])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_least_rights(server: RedisServer, protocol: int, database: int, more: tuple[str, ...]) -> None:
    """Every method works with the documented rights, also when the script is missing; no other command is called."""
    asked(server, "ACL", "SETUSER", "least", "on", ">secret", *LEAST_RIGHTS, *more)
    asked(server, "ACL", "LOG", "RESET")
    url = f"redis://least:secret@{HOST}:{server.port}/{database}?protocol={protocol}"
    async with Limiter(
        "5/hour; 10/day fixed; 10/week rolling", store=RedisStore(url, timeout=30, on_error="deny")
    ) as limiter:
        decisions = [await limiter.rate_limit("key"), await limiter.pace("key"), await limiter.rate_limit("key", 9)]
        asked(server, "SCRIPT", "FLUSH")
        await limiter.refund(decisions[0])
        other = RedisStore(url, timeout=30, on_error="deny")
        async with Limiter("6/hour; 11/day fixed; 12/week rolling", store=other) as changed:
            assert (await changed.rate_limit("key")).allowed
        await limiter.settle(decisions[1], 2)
        decisions.append(await limiter.peek("key"))
        await limiter.reset("key")
        decisions.append(await limiter.peek("key"))
    assert [(d.allowed, d.degraded) for d in decisions] == [(True, False)] * 2 + [(False, False)] + [(True, False)] * 2
    assert decisions[-1].remaining == 5
    refused = {entry[entry.index(b"object") + 1] for entry in entries(asked(server, "ACL", "LOG"))}
    assert refused <= {b"client|setinfo", b"client"}  # redis-py tries to send its name, in vain


def entries(log: Sequence[object]) -> list[list[object]]:
    """The entries of the log, each as a flat list."""
    return [[part for pair in entry.items() for part in pair] if isinstance(entry, dict) else entry for entry in log]


# The further rights that it needs on the nodes of a cluster.
CLUSTER_RIGHTS = ("+cluster|slots", "+asking", "+command")


async def test_the_least_rights_on_a_cluster() -> None:
    """They allow reading the topology, and following a slot that is being migrated."""
    with RedisCluster() as cluster:
        for node in cluster.primaries:
            asked(node, "ACL", "SETUSER", "least", "on", ">secret", *LEAST_RIGHTS, *CLUSTER_RIGHTS)
        store = RedisStore(cluster.url.replace("//", "//least:secret@"), timeout=30, on_error="deny")
        async with Limiter("100/hour", store=store) as limiter:
            assert all([(await limiter.rate_limit(f"key {number}")).allowed for number in range(20)])
            cluster.begin_to_move(key_slot(b"moving"), cluster.primaries[key_slot(b"moving") < 5_461])
            assert (await limiter.rate_limit("moving")).allowed
            await limiter.reset("moving")
