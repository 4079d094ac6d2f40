"""What a scan finds in a Redis, and how it reads what it finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from asgi_ratelimit import Blocks, Limiter, RedisStore, StoreError
from asgi_ratelimit.stores.redis.clients import Commands
from asgi_ratelimit.stores.redis.scan import Scan, StoredBucket, stored_bucket

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000_000.0


async def fill(store: RedisStore, count: int) -> None:
    """Let so many keys use a limit."""
    limiter = Limiter("10/day; 5/hour fixed", store=store, name="a b:c")
    await asyncio.gather(*[limiter.rate_limit(f"key {number}") for number in range(count)])


async def scanned(url: str, name: str | None = None, key: str | None = None, most: int = 10**6) -> list[StoredBucket]:
    """What a scan finds."""
    return await Scan(url).buckets(name, key, most=most)


def names(found: list[StoredBucket]) -> list[tuple[str, str, str]]:
    """Whose buckets they are, in order."""
    return sorted((each.name, each.quota, each.key) for each in found)


async def test_a_scan_finds_buckets_by_name_and_key(redis_url: str, remote: RedisStore) -> None:
    """And nothing else that is in a Redis: documents, operations, and what others have written."""
    await fill(remote, 30)
    await Limiter("9/hour", store=remote, name="other").rate_limit("key 7", operation="once")
    await remote.documents.write("overrides", b"{}")
    with Redis.from_url(redis_url) as client:
        client.mset({"rl:a:b:{c}": "junk", "rl:x:y:{z}": b"\x07", "rl:x:y:f9:{z}": b"\x05abc", "else": "1"})
        client.hset("rl:a:list:{c}", "a", "b")
    of_fill = {("a b:c", quota, f"key {number}") for quota in ("per-day", "per-hour") for number in range(30)}
    assert names(await scanned(redis_url)) == sorted({*of_fill, ("other", "per-hour", "key 7")})
    assert names(await scanned(redis_url, "a b:c")) == sorted(of_fill)
    found = {each.quota: each for each in await scanned(redis_url, "a b:c", "key 7")}
    assert {(each.quota, each.key) for each in found.values()} == {("per-day", "key 7"), ("per-hour", "key 7")}
    assert 0.99 < found["per-day"].used <= 1 == found["per-hour"].used
    assert await scanned(redis_url, "nobody") == []


async def test_a_scan_is_bounded(redis_url: str, remote: RedisStore) -> None:
    """It says so where it has not seen all keys. A call reads many, so that a million keep nobody waiting."""
    await fill(remote, 600)
    scan = Scan(redis_url)
    assert 0 < len(await scan.buckets(most=100)) < 1200
    assert not scan.is_whole
    scan = Scan(redis_url)
    with Redis.from_url(redis_url) as client:
        client.config_resetstat()
        assert len(await scan.buckets(most=10_000)) == 1200
        assert client.info("stats")["total_reads_processed"] < 100
    assert scan.is_whole


async def test_a_redis_that_does_not_answer_is_an_error() -> None:
    """Of a store."""
    for url in ("redis://localhost:1/0", "redis+cluster://localhost:1,localhost:2"):
        with pytest.raises(StoreError):
            await scanned(url)


async def test_a_block_is_a_bucket(redis_url: str, remote: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a name of its own, by which tools leave it out; one, also if Redis returns its key twice."""
    call = Commands.__call__

    async def returning_twice(commands: Commands, *words: str, **options: Any) -> Any:
        answer = await call(commands, *words, **options)
        return [*answer[:2], 2 * answer[2]] if "'SCAN'" in words[1] else answer

    monkeypatch.setattr(Commands, "__call__", returning_twice)
    await Blocks(store=remote, name="login").block("k", 60)
    assert [each.quota for each in await scanned(redis_url)] == ["penalty-block"]


@given(
    st.binary(max_size=60),
    st.sampled_from(["n:q:{k}", "n:q:f60:{k}", "n:q:r60/10:{k}", "n:q:rx/y:{k}", "nqk", "n:%:{%#}"]),
)
def test_any_value_is_a_bucket_or_none(value: bytes, text: str) -> None:
    """Whoever has written it, nothing breaks."""
    for first in (b"", b"\x05", b"\x06", b"\x07"):
        found = stored_bucket(text, first + value, NOW, 1.0)
        assert found is None or found.used > 0.0
