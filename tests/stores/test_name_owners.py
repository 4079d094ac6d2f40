"""Owners: two limits of one name on one store must agree on their quotas, for as long as both are alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.middleware import Middleware

from asgi_ratelimit import (
    ConfigurationError,
    FixedWindow,
    Limiter,
    MemoryStore,
    RateLimit,
    RateLimitMiddleware,
    RedisStore,
    Rule,
    SyncLimiter,
    TokenBucket,
    pace,
)
from asgi_ratelimit.logs import warn_once
from asgi_ratelimit.stores.name_owners import owned, register
from tests.support.asgi import ask, ok

TEN = TokenBucket(10, 60)
TWENTY = TokenBucket(20, 60)


class Owner:
    """A middleware or a dependency, as far as this registry is concerned."""


def registered(store: Any, quota: TokenBucket) -> Owner:
    owner = Owner()
    register(store, owner, [("api", quota)])
    return owner


class PlainStore:
    """A store that can be neither hashed nor compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError


class SlottedStore:
    """A store without weak references."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [MemoryStore, PlainStore, SlottedStore])
def test_two_quotas_of_one_name_are_refused(kind: Any) -> None:
    """On any store, with both quotas and the remedy in the error."""
    store, one, other = kind(), Owner(), Owner()
    register(store, one, [("api", TEN)])
    with pytest.raises(ConfigurationError, match=r'"10/.* and "20/.*name="uploads"'):
        register(store, other, [("api", TWENTY)])


@pytest.mark.parametrize("kind", [MemoryStore, PlainStore, SlottedStore])
def test_other_names_other_quotas_and_other_stores_are_no_conflict(kind: Any) -> None:
    """Equal quotas share their buckets on purpose."""
    store, elsewhere, owners = kind(), kind(), [Owner() for _ in range(5)]
    register(store, owners[0], [("api", TEN)])
    register(store, owners[1], [("api", TokenBucket(10, 60))])
    register(store, owners[2], [("uploads", TWENTY)])
    register(store, owners[3], [("api", FixedWindow(5, 3600))])
    register(elsewhere, owners[4], [("api", TWENTY)])


def test_all_owners_of_a_name_count() -> None:
    """When the last of several is gone, the others still own it."""
    store, first, last = MemoryStore(), Owner(), Owner()
    register(store, first, [("api", TEN)])
    register(store, last, [("api", TEN)])
    del last
    with pytest.raises(ConfigurationError):
        register(store, Owner(), [("api", TWENTY)])


def test_an_owner_may_change_its_quota() -> None:
    """A limit that is registered again replaces what it said before."""
    store, owner, other = MemoryStore(), Owner(), Owner()
    register(store, owner, [("api", TEN)])
    register(store, owner, [("api", TWENTY)])
    register(store, other, [("api", TWENTY)])


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to is gone."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "build",
    [
        registered,
        lambda store, quota: RateLimitMiddleware(ok, quota, store=store, name="api"),
        lambda store, quota: RateLimitMiddleware(ok, rules=[Rule("/", quota, name="api")], store=store, name="first"),
        lambda store, quota: RateLimit(quota, store=store, name="api"),
        lambda store, quota: Limiter(quota, store=store, name="api"),
        lambda store, quota: SyncLimiter(quota, store=store, name="api"),
        lambda store, quota: Starlette(middleware=[Middleware(RateLimitMiddleware, quota, store=store, name="api")]),
    ],
    ids=["owner", "middleware", "rule", "dependency", "limiter", "sync limiter", "app"],
)
def test_an_owner_that_is_dropped_owns_nothing(build: Any) -> None:
    """At once: no owner waits for the garbage collector."""
    store = MemoryStore()
    for limit in range(1, 20):
        owner = build(store, TokenBucket(limit, 60))
        if isinstance(owner, Starlette):
            owner.middleware_stack = owner.build_middleware_stack()
        del owner


@pytest.mark.usefixtures("without_collector")
def test_a_conflict_runs_no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that meets one would hold up all others."""
    monkeypatch.setattr(gc, "collect", lambda *generation: pytest.fail("the collector ran"))
    store, first, second = MemoryStore(), Owner(), Owner()
    register(store, first, [("api", TEN)])
    with pytest.raises(ConfigurationError):
        register(store, second, [("api", TWENTY)])


@pytest.mark.parametrize("kind", [MemoryStore, SlottedStore])
def test_a_store_without_owners_is_gone(kind: Any) -> None:
    """A new store at the address of one that is gone has no owners, and a living owner of the old one is none of it."""
    owner = Owner()
    for limit in range(1, 100):
        register(kind(), owner, [("api", TokenBucket(limit, 60))])
        register(kind(), Owner(), [("api", TokenBucket(limit + 1, 60))])


@pytest.mark.parametrize("kind", [Limiter, SyncLimiter])
@pytest.mark.parametrize(
    "other",
    [Limiter, RateLimit, lambda quota, **options: RateLimitMiddleware(ok, quota, **options)],
    ids=["limiter", "dependency", "middleware"],
)
def test_a_limiter_owns_its_name(kind: Any, other: Any) -> None:
    """Whichever comes second is refused at once, if its quotas differ; equal quotas share their buckets on purpose."""
    for first, second in ((kind, other), (other, kind)):
        store = MemoryStore()
        owner = first("10/minute", store=store, name="api")
        with pytest.raises(ConfigurationError, match=r"two limits named 'api' share a store .* \"10/.* and \"20/"):
            second("20/minute", store=store, name="api")
        assert [owner, second("10/minute", store=store, name="api"), second("20/minute", store=store, name="jobs")]


class BareStore:
    """A store of a user's: what the protocol names, neither hashable nor with weak references."""

    __slots__ = ("_store", "in_process")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._store, self.in_process = MemoryStore(), True

    @property
    def clock(self) -> Any:
        return self._store.clock

    @property
    def documents(self) -> Any:
        return self._store.documents

    @property
    def place(self) -> Any:
        return self._store.place

    async def take(self, takes: Any) -> Any:
        return await self._store.take(takes)

    async def peek(self, take: Any) -> Any:
        return await self._store.peek(take)

    async def settle(self, settlements: Any) -> Any:
        return await self._store.settle(settlements)

    async def reset(self, charges: Any) -> None:
        await self._store.reset(charges)

    async def aclose(self) -> None:
        """There is nothing to close."""


@pytest.mark.anyio
async def test_a_store_need_be_neither_hashable_nor_weakly_referenceable() -> None:
    """All works on it: limiting, pacing, waiting, spending, giving back, decorators, a middleware, a dependency."""
    store = BareStore()
    limiter = Limiter("1000/s", store=store, name="api")
    await limiter.refund(await limiter.rate_limit("key"))
    await limiter.settle(await limiter.pace("key"), 2)
    await limiter.cancel(await limiter.acquire("key"))
    async with limiter.spend("key", 2) as spent:
        spent.settle(1)
    await limiter.reset("key")
    SyncLimiter("1000/s", store=store, name="api").rate_limit("key")

    @pace("1000/s", store=store)
    async def called() -> str:
        return "called"

    assert await called() == "called"
    peer = await ask(RateLimitMiddleware(ok, "1000/s", store=store, name="web"))
    assert peer.status == 200
    assert RateLimit("1000/s", store=store, name="dependency")


# Several stores on one Redis


URL = "redis://localhost:7999"


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        (URL, URL, True),
        (URL, "redis://user:word@localhost:7999/0?protocol=3", True),
        (URL, Redis.from_url(URL), True),
        (URL, f"{URL}/1", False),
        (URL, "redis://localhost:7998", False),
        (URL, "redis+cluster://localhost:7999", False),
        ("unix:///run/redis.sock", "unix:///run/redis.sock", True),
        ("unix:///run/redis.sock", "unix:///run/other.sock", False),
        ("redis+cluster://a:1,b:2", "redis+cluster://b:2,a:1", True),
        ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:3", False),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://b:2,a:1/main", True),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://a:1,b:2/other", False),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://a:1,b:2/main/1", False),
    ],
)
def test_stores_at_one_redis_are_warned_of(
    one: str, other: Any, is_shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Both owners go on; a prefix of its own, and an owner that is gone, are no reason for a warning."""
    warn_once.cache_clear()
    stores = [RedisStore(one), RedisStore(other), RedisStore(other, prefix="shop")]
    owners = [registered(stores[0], TEN), registered(stores[2], TWENTY)]
    assert caplog.messages == []
    owners.append(registered(stores[1], TWENTY))
    assert ["docs/warnings.md#a-name-with-two-quotas" in each for each in caplog.messages] == [True] * is_shared
    assert [list(owned(store)) for store in stores] == [[("api", TEN)], [("api", TWENTY)], [("api", TWENTY)]]
    with pytest.raises(ConfigurationError, match="share a store and have different quotas"):
        registered(stores[0], TWENTY)


def test_an_owner_that_is_gone_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is a store."""
    warn_once.cache_clear()
    first = RedisStore(URL)
    owner = registered(first, TEN)
    del owner
    kept = registered(RedisStore(URL), TWENTY)  # its store is gone at once
    another = registered(RedisStore(URL), TEN)
    assert kept
    assert another
    assert caplog.messages == []
