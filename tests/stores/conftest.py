"""Tests of stores look at all keys, connections and commands, so that nothing is published beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from asgi_ratelimit import RedisStore


@pytest.fixture(autouse=True)
def _unpublished(unpublished: None) -> None:
    """What limiters count stays in this process."""


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the common Redis, to see which keys are there."""
    with redis.Redis.from_url(redis_url, socket_timeout=10) as plain:
        yield plain


@pytest.fixture
async def remote(redis_url: str) -> AsyncIterator[RedisStore]:
    """A store on the common Redis, by its clock; a test fails where this process decides."""
    made = RedisStore(redis_url, timeout=30, on_error="deny")
    yield made
    await made.aclose()
