"""``RedisStore`` over real sentinels: the primary that they name, and the one that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Sentinel
from redis.exceptions import ResponseError

from asgi_ratelimit import ConfigurationError, Limiter, RedisStore, open_store
from tests.support.redis_cluster import RedisSentinel, asked, is_in_step, is_primary, wait_until
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


@dataclass
class Watched:
    """A primary and its replica, and who watches them."""

    primary: RedisServer
    replica: RedisServer
    sentinel: RedisSentinel


@pytest.fixture
def watched() -> Iterator[Watched]:
    """A primary with one replica, watched by one sentinel that knows of both."""
    with RedisServer() as primary, RedisServer("--replicaof", HOST, str(primary.port)) as replica:
        wait_until(lambda: is_in_step(replica))
        with RedisSentinel(primary) as sentinel:
            wait_until(lambda: len(asked(sentinel, "SENTINEL", "REPLICAS", sentinel.service)) == 1)
            yield Watched(primary, replica, sentinel)


@asynccontextmanager
async def limiter_on(source: Any, **options: Any) -> AsyncIterator[Limiter]:
    async with Limiter("10/hour", store=RedisStore(source, **{"timeout": 5, "on_error": "deny", **options})) as limiter:
        yield limiter


async def test_the_primary_that_they_name(watched: Watched) -> None:
    """The limit is kept there; a sentinel that is not there is passed over."""
    url = watched.sentinel.url.replace("//", f"//{HOST}:1,")
    async with limiter_on(url) as limiter:
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(15)])
    assert sum(d.allowed for d in decisions) == 10
    assert not any(d.degraded for d in decisions)
    assert len(asked(watched.primary, "KEYS", "rl:*")) == 1


async def test_a_ready_client_leads_to_it(watched: Watched) -> None:
    """One that was made by ``Sentinel.master_for``."""
    sentinel = Sentinel([(HOST, watched.sentinel.port)])
    client = sentinel.master_for(watched.sentinel.service)
    async with limiter_on(client) as limiter:
        decision = await limiter.rate_limit("key")
    assert (decision.allowed, decision.degraded) == (True, False)
    await client.aclose()
    await sentinel.aclose()


async def test_a_replica_that_takes_over(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """It is decided here until the sentinels have agreed, and then there, with what the replica knows."""
    async with limiter_on(watched.sentinel.url, timeout=0.25, on_error="local") as limiter:
        assert not (await limiter.rate_limit("key")).degraded
        wait_until(lambda: len(asked(watched.replica, "KEYS", "rl:*")) == 1)
        watched.primary.stop()
        assert (await limiter.rate_limit("key")).degraded
        wait_until(lambda: is_primary(watched.replica))
        await until_back(limiter)
        assert (await limiter.rate_limit("key")).remaining < 9
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_primary_that_was_demoted(watched: Watched) -> None:
    """The connection to it leads nowhere useful any more, and is given up for one to the new primary."""
    async with limiter_on(watched.sentinel.url, timeout=0.5, on_error="local") as limiter:
        assert not (await limiter.rate_limit("key")).degraded
        wait_until(lambda: agrees_to_a_failover(watched.sentinel))
        wait_until(lambda: is_primary(watched.replica))
        asked(watched.primary, "REPLICAOF", HOST, watched.replica.port)  # as the sentinel does some seconds later
        await until_back(limiter)
        await limiter.rate_limit("another")
    assert b"another" in b"".join(asked(watched.replica, "KEYS", "rl:*"))


def agrees_to_a_failover(sentinel: RedisSentinel) -> bool:
    """Whether it has begun one; at first it does not know the replica well enough."""
    try:
        return bool(asked(sentinel, "SENTINEL", "FAILOVER", sentinel.service) == b"OK")
    except ResponseError:
        return False


async def until_back(limiter: Limiter) -> None:
    """Return when a call is decided by Redis again."""
    for _ in range(300):
        if not (await limiter.rate_limit("probe")).degraded:
            return
        await asyncio.sleep(0.05)
    pytest.fail("it does not come back")


async def test_a_service_that_nobody_watches(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """It is decided here, and the log names it."""
    async with limiter_on(watched.sentinel.url.replace("/limits", "/other"), on_error="local") as limiter:
        assert (await limiter.rate_limit("key")).degraded
    assert "'other'" in caplog.text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://localhost:26379", "name the service"),
        ("redis+sentinel://localhost:26379,/limits", "a host is missing"),
        ("redis+sentinel://localhost:word/limits", "word"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://localhost:7000/3", "no databases but 0"),
        ("redis+cluster://localhost:7000?no_such_option=1", "no_such_option"),
        ("redis+magic://localhost:7000", "no store is known"),
    ],
)
def test_urls_that_lead_nowhere(url: str, said: str) -> None:
    """They are refused at start-up, quoted, with a right one."""
    with pytest.raises(ConfigurationError, match=said) as error:
        open_store(url)
    assert repr(url) in str(error.value)
    assert "redis+" in str(error.value)
