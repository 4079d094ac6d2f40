"""What all tests share: the event loop they run on, and one real Redis."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from unittest import mock

import pytest
from hypothesis import settings

from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to
from tests.support.redis_server import RedisServer

settings.register_profile("untimed", deadline=None)  # no test is judged by how long it takes
settings.load_profile("untimed")
settings.register_profile("usual", up_to(400))
settings.load_profile("usual")

RedisStore.__init__.__kwdefaults__["timeout"] = 30.0  # type: ignore[index]  # nor does a busy machine pass for an outage

SOURCES = {"tests.support.redis_server", "tests.support.redis_cluster"}
"""A test may start a Redis if its module imports from one of these, or if it uses one of the fixtures below."""
FIXTURES = {"redis_server", "redis_url"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that touch Redis; those that start a process that starts one are marked where they are."""
    assert isinstance(item, pytest.Function)
    imported = {getattr(value, "__module__", None) for value in vars(item.module).values()}
    with_redis = hasattr(item, "callspec") and "redis" in item.callspec.id.split("-")
    if with_redis or imported & SOURCES or FIXTURES.intersection(item.fixturenames):
        item.add_marker("redis")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without the mark finds no Redis: none can be left out where only those with the mark run."""
    if item.get_closest_marker("redis"):
        return (yield)
    with mock.patch.dict(os.environ, REDIS_SERVER="this test lacks the mark redis"):
        return (yield)


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis for the whole run; a test that stops or pauses one starts its own."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of that Redis, with no keys and no scripts in it."""
    assert request.node.get_closest_marker("redis"), "this test lacks the mark redis"
    server: RedisServer = request.getfixturevalue("redis_server")
    server.flush()
    return server.url


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads overrides, where connections or commands are counted."""
    monkeypatch.setattr("asgi_ratelimit.overrides.live_quotas.subscribe", lambda store, subscriber: None)


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody publishes what limiters count, where keys, connections or commands are counted."""
    monkeypatch.setattr("asgi_ratelimit.limiter.counting.publish_unasked", lambda store: None)


@pytest.fixture
def clock() -> SteppedClock:
    """A clock that is stepped by hand."""
    return SteppedClock()


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest, clock: SteppedClock) -> AsyncIterator[Store]:
    """Each kind of store in turn, empty, on that clock."""
    made: Store = MemoryStore(clock=clock)
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis_url"), clock=clock, timeout=30, on_error="deny")
    yield made
    await made.aclose()
