"""Limiters: their methods, in code with and without ``async``."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest
from starlette.background import BackgroundTask

from asgi_ratelimit import Charge, FixedWindow, MemoryStore, RedisStore, Store, SyncLimiter, TokenBucket
from asgi_ratelimit.errors import ConfigurationError, QuotaError
from asgi_ratelimit.limiter.limiter import Limiter
from asgi_ratelimit.testing import SteppedClock
from tests.support.programs import outcome_of

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1)
HOURLY = TokenBucket(5, 3600)


@pytest.fixture
def store(clock: SteppedClock) -> MemoryStore:
    """Limiters work the same on any store."""
    return MemoryStore(clock=clock)


async def test_pace_books_ahead_for_one_key_only(store: Store) -> None:
    """A slot of several keys would keep the shared ones from everybody; without a wait, nothing is booked."""
    limiter = Limiter([TokenBucket(1, 60, name="own"), TokenBucket(10, name="all")], store=store)
    key = {"own": "a", "all": ""}
    with pytest.raises(ConfigurationError, match=r"for the keys \['a', ''\] would keep the shared ones"):
        await limiter.pace(key)
    assert [(await limiter.pace(key, max_delay=0)).allowed for _ in range(2)] == [True, False]


async def test_a_cost_that_never_fits_is_refused_by_its_quota(store: Store) -> None:
    """Not by all of them, as in an outage, however long the caller would wait."""
    limiter = Limiter([FixedWindow(10, 60), TokenBucket(100, 3600)], store=store)
    decision = await limiter.pace("key", 11)
    assert (decision.retry_after, [charge.quota.name for charge in decision.refusing]) == (math.inf, ["per-minute"])


async def test_bytes_and_their_text_are_one_key(store: Store) -> None:
    """If the bytes are UTF-8."""
    limiter = Limiter(EVEN, store=store)
    assert (await limiter.rate_limit("ä")).allowed
    assert not (await limiter.rate_limit("ä".encode())).allowed


VERBS = [Limiter.rate_limit, Limiter.pace, Limiter.peek, Limiter.reset]


@pytest.mark.parametrize("key", [None, 5, 1.5, ("a",), bytearray(b"a")], ids=repr)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
async def test_a_key_is_text_or_bytes(store: Store, verb: Callable[..., Any], key: Any) -> None:
    """Anything else raises, also ``None``, which would be one bucket for many callers."""
    with pytest.raises(TypeError, match="a key is a str or bytes") as raised:
        await verb(Limiter(EVEN, store=store), key)
    assert repr(key) in str(raised.value)


@pytest.mark.parametrize("cost", [0, -1, math.nan, math.inf, 2**53 + 1, "1", None], ids=repr)
@pytest.mark.parametrize("verb", [Limiter.rate_limit, Limiter.pace, Limiter.peek], ids=lambda verb: verb.__name__)
async def test_a_wrong_cost_touches_nothing(store: Store, verb: Callable[..., Any], cost: Any) -> None:
    """It raises, and nothing is charged."""
    limiter = Limiter(HOURLY, store=store)
    with pytest.raises(ValueError, match="cost must be"):
        await verb(limiter, "key", cost)
    assert (await limiter.peek("key")).remaining == 5


async def test_a_wrong_delay_touches_nothing(store: Store) -> None:
    """It raises, and nothing is charged."""
    limiter = Limiter(HOURLY, store=store)
    for max_delay in (-1, math.nan):
        with pytest.raises(ValueError, match="max_delay must be"):
            await limiter.pace("key", max_delay=max_delay)
    assert (await limiter.peek("key")).remaining == 5


@pytest.mark.parametrize("kind", [Limiter, SyncLimiter])
@pytest.mark.parametrize("name", ["", None, 5], ids=repr)
def test_a_name_is_a_text(kind: type, name: Any) -> None:
    """It must not be empty; the error shows a valid one."""
    with pytest.raises(ConfigurationError, match='name="api"'):
        kind("10/s", name=name)


@pytest.mark.parametrize("kind", [Limiter, SyncLimiter])
def test_quotas_are_checked_when_a_limiter_is_built(kind: type) -> None:
    """Not at the first request."""
    with pytest.raises(QuotaError):
        kind("10/fortnight")
    with pytest.raises(ConfigurationError, match="named 'per-second'"):
        kind("10/s; 20/s")
    with pytest.raises(ConfigurationError, match="is not the URL of a store"):
        kind("10/s", store="nowhere://")
    with pytest.raises(ConfigurationError, match=r"not a builtins\.bytes, which has no take"):
        kind("10/s", store=b"redis://user:secret@host")


def test_the_default_store_is_memory() -> None:
    """Each limiter then has its own; a URL opens a store, and a store is used as it is."""
    store = MemoryStore()
    assert Limiter("10/s", store=store).store is store
    assert isinstance(Limiter("10/s").store, MemoryStore)
    assert Limiter("10/s").store is not Limiter("10/s").store
    assert isinstance(Limiter("10/s", store="redis://localhost").store, RedisStore)


async def test_take_charges_any_quotas_and_keys(store: Store) -> None:
    """They are one take; a charge without a name gets the limiter's."""
    limiter = Limiter(EVEN, store=store, name="api")
    other = TokenBucket(3, 3600, name="other")
    decision = await limiter.take([Charge(EVEN, "a"), Charge(other, "b", 2), Charge(EVEN, "a", name="jobs")])
    assert [state.remaining for state in decision.states] == [0, 1, 0]
    assert not (await limiter.rate_limit("a")).allowed
    assert not (await Limiter(EVEN, store=store, name="jobs").rate_limit("a")).allowed
    assert (await Limiter(EVEN, store=store).rate_limit("a")).allowed


async def test_a_limiter_is_a_context() -> None:
    """It closes its store at the end, also after an exception, with ``async`` or without."""
    store = MemoryStore()
    store.aclose = AsyncMock()  # type: ignore[method-assign]
    async with Limiter(EVEN, store=store) as limiter:
        assert (await limiter.rate_limit("key")).allowed
    with pytest.raises(KeyError):
        async with limiter:
            raise KeyError
    assert store.aclose.await_count == 2
    with SyncLimiter(EVEN, store=store) as synchronous:
        assert not synchronous.rate_limit("key").allowed
    with pytest.raises(KeyError), synchronous:
        raise KeyError
    synchronous.close()
    assert store.aclose.await_count == 5


@pytest.mark.parametrize("name", ["rate_limit", "pace"])
def test_a_decision_that_is_not_awaited_is_no_boolean(name: str) -> None:
    """It would be true, and admit everybody."""
    unawaited = getattr(Limiter("1/hour"), name)("key")
    with pytest.raises(TypeError, match=rf"{name} lacks its await, .*: if await limiter.{name}\(key\)"):
        bool(unawaited)
    assert asyncio.run(unawaited)  # whose task is shown on Python 3.12


async def test_what_must_be_awaited_is_a_coroutine_function(store: Store) -> None:
    """A background task would run any other in a thread, and charge nothing; a mock of any other cannot be awaited."""
    limiter = Limiter("2/hour", store=store)
    for method in (limiter.rate_limit, partial(limiter.pace, cost=1)):
        await BackgroundTask(method, "key")()
    assert (await limiter.peek("key")).remaining == 0
    assert await create_autospec(limiter).rate_limit("key")


# Without async

METHODS = [name for name, _ in inspect.getmembers(Limiter, inspect.iscoroutinefunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_every_async_method_has_a_synchronous_one(name: str) -> None:
    """It has the same name and the same parameters; only ``aclose`` is ``close``."""
    synchronous = getattr(SyncLimiter, "close" if name == "aclose" else name)
    assert not inspect.iscoroutinefunction(synchronous)
    assert inspect.signature(synchronous).parameters == inspect.signature(getattr(Limiter, name)).parameters


@pytest.fixture(params=["memory", "redis"])
def make_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """A function that makes stores of each kind, on a clock that stands still."""
    if request.param == "memory":
        return lambda: MemoryStore(clock=SteppedClock())
    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url, clock=SteppedClock(), timeout=30, on_error="deny")


async def test_it_works_inside_a_running_event_loop(make_store: Callable[[], Store]) -> None:
    """It blocks that loop, like all synchronous code, without a deadlock."""
    with SyncLimiter(HOURLY, store=make_store()) as limiter:
        assert [limiter.rate_limit("key", 3).allowed for _ in range(2)] == [True, False]


def test_threads_share_it(make_store: Callable[[], Store]) -> None:
    """Of many calls at once, exactly as many pass as the quota allows."""
    with SyncLimiter(TokenBucket(30, 3600), store=make_store()) as limiter, ThreadPoolExecutor(16) as threads:
        decisions = list(threads.map(lambda _: limiter.rate_limit("key"), range(100)))
    assert sum(decision.allowed for decision in decisions) == 30


FORKING = """
    import os, sys
    from asgi_ratelimit import SyncLimiter, open_store

    store = open_store(sys.argv[1], **({} if sys.argv[1] == "memory://" else {"timeout": 30, "on_error": "deny"}))
    limiter = SyncLimiter("5/hour", store=store)

    def call():
        os.write(1, b"%d\\n" % limiter.rate_limit("key").remaining)

    call()
    child = os.fork()
    call()
    if child == 0:
        limiter.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    call()
    limiter.close()
"""


@pytest.mark.parametrize(("url", "remaining"), [("memory://", [2, 3, 3, 4]), (None, [1, 2, 3, 4])])
def test_a_forked_child_can_use_its_limiter(redis_url: str, url: str | None, remaining: list[int]) -> None:
    """In Redis, parent and child share their buckets; in memory, each has its own from then on."""
    code, printed, complaints = outcome_of(FORKING, url or redis_url, "-W", "ignore::DeprecationWarning")  # of os.fork
    assert (code, complaints) == (0, "")
    assert sorted(map(int, printed.split())) == remaining


FAILING = """
    import sys
    from asgi_ratelimit import SyncLimiter

    limiter = SyncLimiter("100/s", store=sys.argv[1])

    def jobs():
        with limiter.spend("key", 5) as spent:
            spent.settle(2)
            yield

    def work():
        begun = jobs()
        next(begun)
        raise LookupError("a job failed")

    work()
"""


def test_a_program_that_fails_while_something_is_half_done_ends(redis_url: str) -> None:
    """Python closes a generator only as it ends, when nobody can ask Redis any longer."""
    code, _, complaints = outcome_of(FAILING, redis_url)
    assert (code, "LookupError: a job failed" in complaints) == (1, True)
