"""What all tests share: the event loop they run on, and one real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.redis_server import RedisServer

settings.register_profile("untimed", deadline=None)  # no test is judged by how long it takes
settings.load_profile("untimed")


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
def redis_url(redis_server: RedisServer) -> str:
    """The URL of that Redis, with no keys and no scripts in it."""
    redis_server.flush()
    return redis_server.url


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
