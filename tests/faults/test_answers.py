"""A Redis that answers with an error: loading, busy, full, read-only, without rights, out of connections."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.support.redis_cluster import asked, wait_until
from tests.support.redis_server import RedisServer
from tests.support.server import HOST, free_port
from tests.support.trial import QUOTA, trial

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be reconfigured."""
    with RedisServer("--lua-time-limit", "20") as own:
        yield own


def configured(server: RedisServer, name: str, value: object) -> None:
    asked(server, "CONFIG", "SET", name, value)


def out_of_memory(server: RedisServer) -> Callable[[], None]:
    configured(server, "maxmemory", 1)
    return lambda: configured(server, "maxmemory", 0)


def without_replicas(server: RedisServer) -> Callable[[], None]:
    configured(server, "min-replicas-to-write", 1)
    return lambda: configured(server, "min-replicas-to-write", 0)


def unable_to_save(server: RedisServer) -> Callable[[], None]:
    configured(server, "save", "900 1")
    (folder,) = asked(server, "CONFIG", "GET", "dir").values()
    Path(folder.decode(), "dump.rdb").mkdir()
    asked(server, "BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:err" in asked(server, "INFO", "persistence"))
    return lambda: configured(server, "save", "")


def demoted(server: RedisServer) -> Callable[[], None]:
    asked(server, "REPLICAOF", HOST, free_port())
    return lambda: asked(server, "REPLICAOF", "NO", "ONE")


def demoted_and_out_of_date(server: RedisServer) -> Callable[[], None]:
    configured(server, "replica-serve-stale-data", "no")
    return demoted(server)


def without_a_password(server: RedisServer) -> Callable[[], None]:
    """The password of the store's user has changed."""
    asked(server, "ACL", "SETUSER", "limiter", "resetpass", ">rotated")
    asked(server, "CLIENT", "KILL", "USER", "limiter")
    return lambda: asked(server, "ACL", "SETUSER", "limiter", ">secret")


def without_a_right(server: RedisServer) -> Callable[[], None]:
    """The user may run scripts, but not all that they call."""
    asked(server, "ACL", "SETUSER", "limiter", "-set")
    return lambda: asked(server, "ACL", "SETUSER", "limiter", "+set")


def without_scripts(server: RedisServer) -> Callable[[], None]:
    asked(server, "ACL", "SETUSER", "limiter", "-evalsha", "-eval")
    return lambda: asked(server, "ACL", "SETUSER", "limiter", "+evalsha", "+eval")


FAULTS = [
    out_of_memory,
    without_replicas,
    unable_to_save,
    demoted,
    demoted_and_out_of_date,
    without_a_password,
    without_a_right,
    without_scripts,
]


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


async def test_a_full_redis_stays_out(server: RedisServer) -> None:
    """A refusal does not prove that it can write, so the log does not alternate."""
    async with trial(server.url, server) as tried:
        for number in range(30):
            await tried.take(f"used up {number}", QUOTA.burst)
        out_of_memory(server)
        await tried.until_degraded()
        for number in range(30):
            await tried.take(f"used up {number}")
            assert (await tried.take(f"fresh {number}")).degraded
            await asyncio.sleep(0.02)
        configured(server, "maxmemory", 0)


async def test_a_redis_that_evicts(server: RedisServer) -> None:
    """Each key that it drops is a full bucket again: nothing fails, and no other key gets more."""
    async with trial(server.url, server, outages=0) as tried:
        await tried.takes(QUOTA.burst + 1, "full")  # the whole script and buffers cannot be evicted
        for number in range(20):
            await tried.takes(200, f"first {number} {{}}")
        used = int(asked(server, "INFO", "memory").decode().split("used_memory:")[1].split()[0])
        configured(server, "maxmemory-policy", "allkeys-random")
        configured(server, "maxmemory", used + 500_000)  # Redis 8 counts up to 300 KB of a script's garbage
        for number in range(40):
            await tried.takes(200, f"spray {number} {{}}")
            await tried.takes(5)
        evicted = int(asked(server, "INFO", "stats").decode().split("evicted_keys:")[1].split()[0])
        assert evicted > 0
        assert tried.admitted() <= QUOTA.burst * (evicted + 1)
        assert all(tried.admitted(f"spray {number} 0") == 1 for number in range(40))


# Not ready


class Loading(RedisServer):
    """A Redis that counts as started while it is still loading."""

    def greets(self, connection: socket.socket) -> bool:
        """Whether it answers at all."""
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-LOADING"))


@pytest.fixture
def slow_to_load(tmp_path: Path) -> Iterator[Loading]:
    """A Redis that loads for about a second."""
    with RedisServer("--dir", str(tmp_path)) as filled:
        for number in range(30):
            asked(filled, "SET", f"key {number}", os.urandom(1_000_000))
        asked(filled, "SAVE")
    with Loading("--dir", str(tmp_path), "--key-load-delay", "30000") as server:
        yield server


async def test_a_redis_that_is_loading(slow_to_load: Loading) -> None:
    """It is out until it has loaded; it is probed now and then, and not by every take."""
    degraded = 0
    async with Limiter(QUOTA, store=RedisStore(slow_to_load.url, timeout=0.25)) as limiter:
        began = time.monotonic()
        while (await limiter.rate_limit("key", 0.01)).degraded:
            degraded += 1
            await asyncio.sleep(0.001)
        lasted = time.monotonic() - began
    stats = asked(slow_to_load, "INFO", "stats").decode()
    connections = int(stats.split("total_connections_received:")[1].split()[0])
    assert degraded > 50
    assert 1 < connections < 10 + 10 * lasted


def endless(server: RedisServer, script: str) -> threading.Thread:
    """Run another client's script, which has no end, until it is killed."""

    def run() -> None:
        with Redis(host=HOST, port=server.port, retry=Retry(NoBackoff(), 0)) as once, suppress(RedisError):
            once.eval(script, 0)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: is_busy(server))
    return thread


def is_busy(server: RedisServer) -> bool:
    try:
        return bool(asked(server, "PING") is None)
    except ResponseError as error:
        return "BUSY" in str(error)


async def test_a_redis_that_is_busy_with_a_script(server: RedisServer) -> None:
    """This process decides until the script is killed."""
    async with trial(server.url, server) as tried:
        await tried.takes(10)
        script = endless(server, "while true do end")
        assert all(d.degraded for d in await tried.takes(30))
        asked(server, "SCRIPT", "KILL")
        script.join()
        await tried.until_back()
        assert tried.admitted() <= 10 + QUOTA.burst


async def test_a_redis_whose_script_cannot_be_killed(server: RedisServer) -> None:
    """It has written, so that only a restart helps; that is enough."""
    async with trial(server.url, server) as tried:
        await tried.takes(10)
        script = endless(server, "redis.call('SET', 'x', 1) while true do end")
        assert all(d.degraded for d in await tried.takes(30))
        server.kill()
        script.join()
        server.start()
        await tried.until_back()


async def test_a_redis_with_too_many_clients(server: RedisServer) -> None:
    """A thousand waiting takes are answered, over few attempts to connect."""
    async with trial(server.url, server) as tried:
        with Redis(host=HOST, port=server.port) as only:
            only.ping()
            only.config_set("maxclients", 1)
            before = only.info("stats")
            assert all(d.degraded for d in await tried.takes(1_000, "key {}"))
            after = only.info("stats")
            only.config_set("maxclients", 100)
    assert after["total_connections_received"] - before["total_connections_received"] <= 5


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
