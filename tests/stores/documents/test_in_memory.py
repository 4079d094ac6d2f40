"""Documents of a memory store expire by its clock."""

from __future__ import annotations

import pytest

from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.documents import documents
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio


async def test_documents_and_parts_expire(clock: SteppedClock) -> None:
    """Exactly after their seconds; a later write without them lives on."""
    shared = documents(MemoryStore(clock=clock))
    await shared.write("name", b"1", seconds=10)
    await shared.write("other", b"1", seconds=10)
    assert await shared.replace("other", b"1", b"2", seconds=20)
    await shared.write_part("parts", "short", b"1", seconds=10)
    await shared.write_part("parts", "long", b"2")
    clock.advance(9.999999)
    assert await shared.read("name") == b"1"
    assert await shared.read_parts("parts") == {"short": b"1", "long": b"2"}
    clock.advance(0.000001)
    assert await shared.read("name") is None
    assert await shared.replace("name", None, b"3")
    assert await shared.read("other") == b"2"
    assert await shared.read_parts("parts") == {"long": b"2"}
