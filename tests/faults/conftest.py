"""Tests of faults look at all keys, connections and commands, so that nothing is published or read beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer


@pytest.fixture(autouse=True)
def _undisturbed(unpublished: None, unwatched: None) -> None:
    """What limiters count stays in this process, and nobody reads overrides or compares clocks."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for one module, to be frozen or cut off."""
    with RedisServer() as own:
        yield own


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Proxy]:
    """A line to that Redis, which has no keys."""
    server.flush()
    async with Proxy(server.port) as own:
        yield own
