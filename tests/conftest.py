"""What all tests share: the event loop they run on, and one real Redis."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from inspect import isfunction, unwrap
from types import CodeType

import pytest
from hypothesis import settings

from asgi_ratelimit import MemoryStore, RateLimit, RedisStore, Store, logs
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer

settings.register_profile("untimed", deadline=None)  # no test is judged by how long it takes
settings.load_profile("untimed")
settings.register_profile("usual", up_to(400))
settings.load_profile("usual")

unwrap(RedisStore.__init__).__kwdefaults__["timeout"] = 30.0  # nor does a busy machine pass for an outage

logs.MANY = 10**9  # a run of tests makes more of everything than a program

# A test may start a Redis if it, one of its fixtures, or a function of its module that they call uses one of these.
SOURCES = {"tests.support.redis_server", "tests.support.redis_cluster"}
FIXTURES = {"redis_server", "redis_url"}
PARAMETERS = {"redis", "cluster"}
CHOICE = "REDIS_SERVER"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that touch Redis; those that start a process that starts one are marked where they are."""
    assert isinstance(item, pytest.Function)
    parameters = item.callspec.id.split("-") if hasattr(item, "callspec") else ()
    fixtures = [fixture.func for each in item._fixtureinfo.name2fixturedefs.values() for fixture in each]
    if (
        PARAMETERS.intersection(parameters)
        or FIXTURES.intersection(item.fixturenames)
        or any(uses_redis(function) for function in (item.function, *fixtures))
    ):
        item.add_marker("redis")


@cache
def uses_redis(function: Callable[..., object]) -> bool:
    """Whether it, or a function of its module that it calls, names something of ``SOURCES``."""
    seen, ahead = set(), [unwrap(function)]
    while ahead:
        each = ahead.pop()
        if each in seen or not isfunction(each):
            continue
        seen.add(each)
        named = [each.__globals__.get(name) for name in names_in(each.__code__)]
        if any(getattr(value, "__module__", None) in SOURCES for value in named):
            return True
        ahead += [unwrap(value) for value in named if isfunction(value) and value.__module__ == each.__module__]
    return False


def names_in(code: CodeType) -> Iterator[str]:
    """The global names that a function uses, those in functions within it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What lives as long as the run is walked by no garbage collection: that took a second here, and half of one later.

    All that is made here does.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without the mark finds no Redis: none can be left out where only those with the mark run."""
    if item.get_closest_marker("redis"):
        return (yield)
    chosen, os.environ[CHOICE] = os.environ.get(CHOICE), "this test lacks the mark redis"
    try:
        return (yield)
    finally:
        os.environ.pop(CHOICE, None)
        if chosen is not None:
            os.environ[CHOICE] = chosen


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What a module has left behind is collected at its end, not in a later test, which is not to blame for it.

    It is not frozen: what another thread has in hand just then would stay for the rest of the run, and go on working.
    """
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """Each test gets all warnings and no default store, as in a process of its own."""
    logs.warn_once.cache_clear()
    yield
    RateLimit.set_store(None)


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
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be stopped, frozen, filled up and reconfigured."""
    with RedisServer() as own:
        yield own


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of that Redis, with no keys in it."""
    assert request.node.get_closest_marker("redis"), "this test lacks the mark redis"
    server: RedisServer = request.getfixturevalue("redis_server")
    server.flush()
    return server.url


@pytest.fixture(scope="module", params=["memory", "redis"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of store in turn, for servers in processes of their own."""
    server: RedisServer | None = request.getfixturevalue("redis_server") if request.param == "redis" else None
    return server.url if server else "memory://"


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the common Redis, which has no keys."""
    redis_server.flush()
    async with Proxy(redis_server.port) as own:
        yield own


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads overrides, where connections or commands are counted, or all answers are changed."""
    monkeypatch.setattr("asgi_ratelimit.overrides.Watch.start", lambda watch: None)


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody publishes what limiters count, where keys, connections or commands are counted."""
    monkeypatch.setattr("asgi_ratelimit.counts.Counts.start", lambda counts: None)


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
