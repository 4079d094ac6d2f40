"""Documents of a memory store expire by its clock."""

from __future__ import annotations

import tracemalloc

import pytest

from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.documents import documents
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio


async def test_documents_and_parts_expire(clock: SteppedClock) -> None:
    """Exactly after their seconds; a replaced document lives on, and so do parts to which another one comes."""
    shared = documents(MemoryStore(clock=clock))
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
    shared = documents(MemoryStore(clock=clock))
    tracemalloc.start()
    for number in range(100):
        await shared.write(f"document {number}", bytes(10_000), seconds=60)
        await shared.write_part(f"minute {number}", "part", bytes(10_000), seconds=60)
        clock.advance(60)
    stored, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored < 200_000
