"""Tests of faults look at all keys, connections and commands, so that nothing is published or read beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer


@pytest.fixture(autouse=True)
def _undisturbed(unpublished: None, unwatched: None) -> None:
    """What limiters count stays in this process, and nobody reads overrides."""


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Proxy]:
    """A line to the Redis of the test."""
    async with Proxy(server.port) as own:
        yield own
