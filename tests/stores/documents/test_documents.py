"""Documents: what all processes of a store share beside the buckets, on every store."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest

from asgi_ratelimit import MemoryStore, RedisStore, Store
from asgi_ratelimit.stores.base import Documents
from asgi_ratelimit.stores.documents import MAX_BYTES
from asgi_ratelimit.testing import SteppedClock
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

CONTENTS = [b"", b"{}", b"=", b"%0A%25\n", b"\n*9999999\n", bytes(range(256)), "ü🙂".encode()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """Three primaries for all tests here."""
    with RedisCluster() as own:
        yield own


@pytest.fixture(params=["memory", "redis", "cluster"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[Documents]:
    """The documents of each kind of store in turn, of which there are none yet."""
    store: Store = MemoryStore()
    if request.param != "memory":
        server: RedisServer | RedisCluster = request.getfixturevalue(
            "redis_server" if request.param == "redis" else request.param
        )
        server.flush()
        store = RedisStore(server.url, timeout=30)
    yield store.documents
    await store.aclose()


@pytest.mark.parametrize("content", CONTENTS)
async def test_any_content_is_read_as_it_was_written(shared: Documents, content: bytes) -> None:
    """A document, a replaced one and a part of one."""
    assert await shared.read("name") is None
    await shared.write("name", content)
    assert await shared.read("name") == content
    assert await shared.replace("name", content, content + b"2")
    assert await shared.read("name") == content + b"2"
    await shared.write_part("name: parts", "a:b\n{%}", content, seconds=600)
    assert await shared.read_parts("name: parts") == {"a:b\n{%}": content}


async def test_a_document_is_replaced_only_if_it_is_still_the_same(shared: Documents) -> None:
    """Neither where it has changed, nor where there is one, or none, against expectation."""
    assert not await shared.replace("name", b"old", b"new")
    assert await shared.replace("name", None, b"old")
    assert not await shared.replace("name", None, b"new")
    assert not await shared.replace("name", b"other", b"new")
    assert await shared.read("name") == b"old"
    assert await shared.replace("name", b"old", b"new")
    assert await shared.read("name") == b"new"


async def test_the_largest_content(shared: Documents) -> None:
    """A megabyte."""
    largest = b"\n" * MAX_BYTES
    await shared.write("name", largest)
    await shared.write_part("parts", "part", largest, seconds=600)
    assert await shared.read("name") == largest
    assert await shared.read_parts("parts") == {"part": largest}


async def test_documents_and_parts_expire(clock: SteppedClock) -> None:
    """Exactly after their seconds; a replaced document lives on, and so do parts to which another one comes."""
    shared = MemoryStore(clock=clock).documents
    await shared.write("name", b"1", seconds=10)
    await shared.write("other", b"1", seconds=10)
    assert await shared.replace("other", b"1", b"2")
    await shared.write_part("parts", "first", b"1", seconds=10)
    clock.advance(9.999999)
    assert await shared.read("name") == b"1"
    await shared.write_part("parts", "second", b"2", seconds=10)
    clock.advance(0.000001)
    assert await shared.read("name") is None
    assert await shared.replace("name", None, b"3")
    assert await shared.read("other") == b"2"
    assert await shared.read_parts("parts") == {"first": b"1", "second": b"2"}
    clock.advance(10)
    assert await shared.read_parts("parts") == {}


async def test_what_has_expired_takes_no_memory(clock: SteppedClock) -> None:
    """Neither documents nor parts, although each has a name of its own, which nobody reads or writes again."""
    shared = MemoryStore(clock=clock).documents
    tracemalloc.start()
    for number in range(100):
        await shared.write(f"document {number}", bytes(10_000), seconds=60)
        await shared.write_part(f"minute {number}", "part", bytes(10_000), seconds=60)
        clock.advance(60)
    stored, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored < 200_000
