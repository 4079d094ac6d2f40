"""A Redis that answers with an error: loading, busy, full, read-only, without rights, out of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from asgi_ratelimit import TokenBucket
from tests.support.redis_cluster import asked, wait_until
from tests.support.redis_server import RedisServer
from tests.support.server import HOST, free_port
from tests.support.trial import QUOTA, trial

pytestmark = pytest.mark.anyio


def configured(server: RedisServer, name: str, value: object) -> None:
    asked(server, "CONFIG", "SET", name, value)


def out_of_memory(server: RedisServer) -> Callable[[], None]:
    configured(server, "maxmemory", 1)
    return lambda: configured(server, "maxmemory", 0)


def unable_to_save(server: RedisServer) -> Callable[[], None]:
    configured(server, "save", "900 1")
    answer = asked(server, "CONFIG", "GET", "dir")
    folder = answer[b"dir"] if isinstance(answer, dict) else answer[1]  # as redis-py before 8 has it
    Path(folder.decode(), "dump.rdb").mkdir()
    asked(server, "BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:err" in asked(server, "INFO", "persistence"))
    return lambda: configured(server, "save", "")


def demoted(server: RedisServer) -> Callable[[], None]:
    asked(server, "REPLICAOF", HOST, free_port())
    return lambda: asked(server, "REPLICAOF", "NO", "ONE")


def without_a_password(server: RedisServer) -> Callable[[], None]:
    """The password of the store's user has changed."""
    asked(server, "ACL", "SETUSER", "limiter", "resetpass", ">rotated")
    asked(server, "CLIENT", "KILL", "USER", "limiter")
    return lambda: asked(server, "ACL", "SETUSER", "limiter", ">secret")


def without_a_right(server: RedisServer) -> Callable[[], None]:
    """The user may run scripts, but not all that they call."""
    asked(server, "ACL", "SETUSER", "limiter", "-set")
    return lambda: asked(server, "ACL", "SETUSER", "limiter", "+set")


FAULTS = [out_of_memory, unable_to_save, demoted, without_a_password, without_a_right]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_redis_that_refuses(server: RedisServer, fault: Callable[[RedisServer], Callable[[], None]]) -> None:
    """It counts as out: this process decides at once, and Redis decides again as soon as it can."""
    asked(server, "ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all")
    async with trial(f"redis://limiter:secret@{HOST}:{server.port}", server) as tried:
        assert not any(d.degraded for d in await tried.takes(10))
        repair = fault(server)
        assert all(d.degraded for d in await tried.takes(30))
        assert tried.admitted() <= 10 + QUOTA.burst
        repair()
        await tried.until_back()


# Full


async def test_a_full_redis_still_refuses(server: RedisServer) -> None:
    """A refusal writes nothing, so it needs no memory; a take that cannot be written is not written in part."""
    slow, slower = TokenBucket(5, 3600), TokenBucket(5, 86_400)
    async with trial(server.url, server, quota=(slow, slower)) as tried:
        await tried.take("used up", 5)
        out_of_memory(server)
        refused = await tried.take("used up", 2)
        assert (refused.allowed, refused.degraded) == (False, False)
        assert (await tried.take("fresh")).degraded
        assert asked(server, "KEYS", "*fresh*") == []
        configured(server, "maxmemory", 0)


# Not ready


async def test_a_restart_while_a_thousand_takes_wait(server: RedisServer) -> None:
    """They reconnect over few connections."""
    async with trial(server.url, server) as tried:
        await tried.takes(1_000, "key {}")
        server.stop()
        assert all(d.degraded for d in await tried.takes(1_000, "key {}"))
        server.start()
        await asyncio.gather(tried.until_back(), tried.takes(1_000, "key {}"))
        stats = asked(server, "INFO", "stats").decode()
        assert int(stats.split("total_connections_received:")[1].split()[0]) <= 10
