"""A cluster for the tests here; one that changes it for good starts its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.redis_cluster import RedisCluster


@pytest.fixture(scope="module")
def running() -> Iterator[RedisCluster]:
    """A cluster for a whole module."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: RedisCluster) -> RedisCluster:
    """That cluster, with no keys in it."""
    running.flush()
    return running
