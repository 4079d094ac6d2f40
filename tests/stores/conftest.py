"""Tests of stores look at all keys, connections and commands, so that nothing is published beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis


@pytest.fixture(autouse=True)
def _unpublished(unpublished: None) -> None:
    """What limiters count stays in this process."""


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the common Redis, to see which keys are there."""
    with redis.Redis.from_url(redis_url, socket_timeout=10) as plain:
        yield plain
