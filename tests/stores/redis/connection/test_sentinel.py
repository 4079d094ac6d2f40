"""``RedisStore`` over real sentinels: the primary that they report, and the one that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis.asyncio import Sentinel

from asgi_ratelimit import StoreUnavailable
from tests.stores.redis import limiters
from tests.stores.redis.connection.test_connecting import copy, self_signed, tls_in_front_of
from tests.support.overriding import until_back
from tests.support.proxy import listening
from tests.support.redis_cluster import RedisSentinel, asked, is_in_step, is_primary, wait_until
from tests.support.redis_server import RedisServer
from tests.support.server import HOST
from tests.support.trial import transitions

pytestmark = pytest.mark.anyio


@dataclass
class Watched:
    """A primary, its replica, and the sentinel that watches them."""

    primary: RedisServer
    replica: RedisServer
    sentinel: RedisSentinel


@pytest.fixture
def watched() -> Iterator[Watched]:
    """A primary with one replica, and one sentinel that knows both."""
    with RedisServer() as primary, RedisServer("--replicaof", HOST, str(primary.port)) as replica:
        wait_until(lambda: is_in_step(replica))
        with RedisSentinel(primary) as sentinel:
            wait_until(lambda: len(asked(sentinel, "SENTINEL", "REPLICAS", sentinel.service)) == 1)
            yield Watched(primary, replica, sentinel)


limiter_on = partial(limiters.limiter_on, on_error="deny")


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The end of a connection that never answers."""
    while await reader.read(65_536):
        pass
    writer.close()


async def test_the_primary_that_the_sentinels_report(watched: Watched) -> None:
    """The buckets are there; a sentinel that does not answer is skipped in time for the next."""
    url = watched.sentinel.url
    async with listening(silent) as port, limiter_on(url.replace("//", f"//{HOST}:{port},"), timeout=1.0) as limiter:
        await until_back(limiter, cost=1)
    async with limiter_on(url.replace("//", f"//{HOST}:1,")) as limiter:
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(15)])
    assert sum(d.allowed for d in decisions) == 10
    assert not any(d.degraded for d in decisions)
    assert len(asked(watched.primary, "KEYS", "rl:*")) == 2


async def test_a_client_can_be_given(watched: Watched) -> None:
    """One that was made by ``Sentinel.master_for``."""
    sentinel = Sentinel([(HOST, watched.sentinel.port)])
    client = sentinel.master_for(watched.sentinel.service)
    async with limiter_on(client) as limiter:
        decision = await limiter.rate_limit("key")
    assert (decision.allowed, decision.degraded) == (True, False)
    await client.aclose()
    await asyncio.gather(*[each.aclose() for each in sentinel.sentinels])


async def test_a_replica_that_takes_over(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """This process decides until the sentinels have agreed, then the replica does, with the states that it has."""
    async with limiter_on(watched.sentinel.url, on_error="local") as limiter:
        assert not (await limiter.rate_limit("key")).degraded
        wait_until(lambda: len(asked(watched.replica, "KEYS", "rl:*")) == 1)
        watched.primary.stop()
        assert (await limiter.rate_limit("key")).degraded
        wait_until(lambda: is_primary(watched.replica))
        await until_back(limiter)
        assert (await limiter.rate_limit("key")).remaining < 9
    assert transitions(caplog.records) == ["ERROR", "WARNING"]


async def test_a_service_that_no_sentinel_watches(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """This process decides, and the log names the service."""
    async with limiter_on(watched.sentinel.url.replace("/limits", "/other"), on_error="local") as limiter:
        assert (await limiter.rate_limit("key")).degraded
    assert "'other'" in caplog.text


async def test_tls_settings_reach_the_sentinels(watched: Watched, tmp_path: Path) -> None:
    """The certificates of the URL are those of the sentinels as well; without them, no sentinel is trusted."""
    certificate, key = self_signed(tmp_path)
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(tls_in_front_of(watched.primary.port, certificate, key))
        either = await stack.enter_async_context(plain_or_tls(watched.primary.port, primary))
        with RedisSentinel(SimpleNamespace(port=either)) as sentinel:  # type: ignore[arg-type]  # it only needs the port
            wait = asyncio.to_thread(wait_until, lambda: reports(sentinel))
            await wait
            port = await stack.enter_async_context(tls_in_front_of(sentinel.port, certificate, key))
            url = f"rediss+sentinel://{HOST}:{port}/{sentinel.service}"
            async with limiter_on(f"{url}?ssl_ca_certs={certificate}") as limiter:
                assert not (await limiter.rate_limit("key")).degraded
            async with limiter_on(url) as limiter:
                with pytest.raises(StoreUnavailable):
                    await limiter.peek("key")


def reports(sentinel: RedisSentinel) -> bool:
    """Whether a sentinel says that the primary is up."""
    flags = asked(sentinel, "SENTINEL", "MASTER", sentinel.service)
    return b"s_down" not in b" ".join(map(bytes, flags)) if isinstance(flags, list) else "s_down" not in str(flags)


@asynccontextmanager
async def plain_or_tls(plain: int, tls: int) -> AsyncIterator[int]:
    """A port that forwards what begins as TLS to one port, and all else to another: sentinels speak no TLS."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        inner_reader, inner_writer = await asyncio.open_connection(HOST, tls if first == b"\x16" else plain)
        inner_writer.write(first)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)

    async with listening(relay) as front:
        yield front
