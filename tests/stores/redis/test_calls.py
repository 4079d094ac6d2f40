"""What a store on Redis tells its observers of each call."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from asgi_ratelimit import Limiter, MemoryStore, RedisStore
from asgi_ratelimit.hooks import Event, StoreCall
from asgi_ratelimit.stores import observe
from tests.stores.redis.limiters import PATIENT, QUOTA
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


class Observer:
    """A hook that notes calls of the store."""

    def __init__(self) -> None:
        self.calls: list[StoreCall] = []

    def __call__(self, event: Event) -> None: ...

    def store_called(self, call: StoreCall) -> None:
        self.calls.append(call)


async def test_an_observer_is_told_of_each_batch(redis_url: str) -> None:
    """How many takes were in it, and how long it took; once, however many limiters have the hook."""
    observer = Observer()
    store = RedisStore(redis_url, prefix="shop", timeout=PATIENT)
    limiters = [Limiter(QUOTA, name=name, store=store, hooks=[observer]) for name in ("one", "two")]
    await asyncio.gather(*[limiter.rate_limit("key") for limiter in limiters for _ in range(3)])
    await store.aclose()
    (call,) = observer.calls
    assert (call.store, call.size, call.error, call.is_out, call.ledger) == ("shop", 6, None, False, 0)
    assert 0 < call.seconds < PATIENT


async def test_an_observer_is_told_of_an_outage_and_its_end() -> None:
    """Why a call has failed, that the store is out, and how much it is still to be charged with until it is."""
    observer = Observer()
    server = RedisServer()
    async with Limiter(QUOTA, store=RedisStore(server.url, timeout=PATIENT), hooks=[observer]) as limiter:
        await limiter.rate_limit("key")
        (failed,) = observer.calls
        assert "cannot be reached" in str(failed.error)
        assert (failed.is_out, failed.ledger) == (True, 1)
        with server:
            while observer.calls[-1].is_out or observer.calls[-1].ledger:
                await limiter.rate_limit("key")
                await asyncio.sleep(0)
            assert observer.calls[-1].error is None


async def test_an_observer_that_fails_affects_nobody(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the others are called."""

    class Broken(Observer):
        def store_called(self, call: StoreCall) -> None:
            raise LookupError(f"no such gauge: {call.size}")

    observers = [Broken(), Observer()]
    async with Limiter(QUOTA, store=RedisStore(redis_url, timeout=PATIENT), hooks=observers) as limiter:
        assert [(await limiter.rate_limit("key")).degraded for _ in range(2)] == [False, False]
    assert len(observers[1].calls) == 2
    assert ["no such gauge" in message for message in caplog.messages] == [True]


async def test_a_store_does_not_keep_its_observers_alive(redis_url: str) -> None:
    """A limiter that the program has dropped is gone, with its hooks."""
    store = RedisStore(redis_url, timeout=PATIENT)
    dropped, observer = Observer(), Observer()
    limiter = Limiter(QUOTA, store=store, hooks=[dropped])
    observe(store, observer)
    gone = weakref.ref(dropped)
    del limiter, dropped
    gc.collect()
    assert gone() is None
    await Limiter(QUOTA, store=store).rate_limit("key")
    await store.aclose()
    assert len(observer.calls) == 1


async def test_a_store_without_a_server_has_no_calls() -> None:
    """It takes an observer all the same."""
    observer = Observer()
    async with Limiter(QUOTA, store=MemoryStore(), hooks=[observer]) as limiter:
        await limiter.rate_limit("key")
    assert observer.calls == []
