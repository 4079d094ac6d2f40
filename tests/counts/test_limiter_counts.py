"""What limiters, paced calls and transports count is published, with no middleware or dashboard in the program."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import httpx
import pytest

from asgi_ratelimit import Limiter, Overrides, PacedTransport, PaceTimeout, RedisStore, StoreTimeout, SyncLimiter, pace
from asgi_ratelimit.counts import counts_of
from asgi_ratelimit.dashboard import summary
from asgi_ratelimit.overrides import watch_of
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.overriding import until_async
from tests.support.programs import outcome_of
from tests.support.redis_server import RedisServer
from tests.support.trial import connections_of

URL = "http://shop/"


async def seen(store: Store) -> dict[str, tuple[int, int, int]]:
    """What a reader of the store sees of each name: admitted, refused, shadowed."""
    return {rule.name: (rule.admitted, rule.refused, rule.shadowed) for rule in (await summary(store)).rules}


def seen_at(url: str) -> dict[str, tuple[int, int, int]]:
    """What another process sees."""

    async def read() -> dict[str, tuple[int, int, int]]:
        store = RedisStore(url, timeout=30)
        try:
            return await seen(store)
        finally:
            await store.aclose()

    return asyncio.run(read())


def until_seen(url: str, expected: dict[str, tuple[int, int, int]]) -> None:
    """Return when another process sees this."""

    async def wait() -> None:
        await until_async(lambda: asyncio.to_thread(lambda: seen_at(url) == expected))

    asyncio.run(wait())


@contextlib.contextmanager
def maybe_refused() -> Any:
    """A call that may be refused."""
    with contextlib.suppress(PaceTimeout):
        yield


def callers(store: Store) -> dict[str, Callable[[], Awaitable[object]]]:
    """One caller for each way to take, under a name of its own; each may go once an hour."""
    options: dict[str, Any] = {"store": store, "max_delay": 0.0}
    limiters = {name: Limiter("1/hour", store=store, name=name) for name in ("limit", "acquire", "spend", "two")}
    transport = PacedTransport(httpx.MockTransport(lambda _: httpx.Response(200)), "1/hour", name="shop", **options)

    @pace("1/hour", name="pace", **options)
    async def call() -> None: ...

    @pace("1/hour", name="plain", **options)
    def plain() -> None: ...

    @pace("1/hour", name="hooked", hooks=[lambda event: None], **options)
    async def hooked() -> None: ...

    async def spend() -> None:
        async with limiters["spend"].spend("key", 1, max_delay=0.0):
            pass

    return {
        "limit": lambda: limiters["limit"].rate_limit("key"),
        "acquire": lambda: limiters["acquire"].acquire("key", max_delay=0.0),
        "spend": spend,
        "pace": call,
        "plain": lambda: asyncio.to_thread(plain),
        "hooked": hooked,
        "shop": lambda: transport.handle_async_request(httpx.Request("GET", URL)),
    }


@pytest.mark.anyio
async def test_each_decision_counts_once_under_its_name(clock: SteppedClock) -> None:
    """Whatever it is made by: admitted when the call goes, refused when it gives up, shadowed under that word."""
    store = MemoryStore(clock=clock)
    by_name = callers(store)
    for caller in by_name.values():
        for _ in range(3):
            with maybe_refused():
                await caller()
    assert await seen(store) == {**dict.fromkeys(by_name, (1, 2, 0)), "two": (0, 0, 0)}
    overrides = Overrides(store)
    for name, caller in by_name.items():
        for word in ("off", "shadow"):
            await overrides.set(name, word)
            await caller()
    assert await seen(store) == {**dict.fromkeys(by_name, (1, 2, 1)), "two": (0, 0, 0)}


def test_on_redis_another_process_sees_it(redis_url: str) -> None:
    """Of callers without async, of one event loop for each call, and of transports, while they are in use."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    limiter, waiting = SyncLimiter("2/hour", store=store, name="sync"), Limiter("2/hour", store=store, name="runs")
    transport = PacedTransport(httpx.MockTransport(lambda _: httpx.Response(200)), "9/s burst 9", store=store)

    async def use() -> None:
        await waiting.rate_limit("ann")
        await transport.handle_async_request(httpx.Request("GET", URL))
        await store.aclose()

    for _ in range(3):
        limiter.rate_limit("ann")
        asyncio.run(use())
    limiter.rate_limit("ann")
    until_seen(redis_url, {"sync": (2, 2, 0), "runs": (2, 1, 0), "outbound": (3, 0, 0)})
    limiter.close()


@pytest.mark.anyio
async def test_closing_publishes_what_is_left_and_closes_all(redis_url: str, redis_server: RedisServer) -> None:
    """As often as the store is used again, and without a connection that stays open."""
    before = connections_of(redis_server)
    for number in (1, 2):
        async with Limiter("5/hour", store=redis_url, name="mails") as limiter:
            await limiter.rate_limit("ann")
        assert connections_of(redis_server) == before
        other = RedisStore(redis_url, timeout=30)
        assert (await seen(other))["mails"] == (number, 0, 0)
        await other.aclose()


@pytest.mark.redis
def test_a_forked_child_publishes_its_own(redis_url: str) -> None:
    """Parent and child each publish what they have counted, once, and nothing is left to be complained of."""
    program = """
        import os, sys
        from asgi_ratelimit import RedisStore, SyncLimiter

        limiter = SyncLimiter("100/hour", store=RedisStore(sys.argv[1], timeout=20), name="mails")
        for _ in range(3):
            limiter.rate_limit("ann")
        child = os.fork()
        for _ in range(10 if child else 20):
            limiter.rate_limit("ann")
        limiter.close()
        if not child:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    code, printed, complaints = outcome_of(program, redis_url, "-W", "ignore::DeprecationWarning")  # of os.fork
    assert (code, printed) == (0, "0\n"), complaints
    assert "Traceback" not in complaints
    assert seen_at(redis_url) == {"mails": (33, 0, 0)}


@pytest.mark.anyio
async def test_a_store_that_is_dropped_is_not_kept_alive(redis_url: str, redis_server: RedisServer) -> None:
    """Publishing and watching end with it, and close their connections, also where nobody has closed the store."""
    before = connections_of(redis_server)
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    await Limiter("5/hour", store=store, name="mails").rate_limit("ann")
    await store.aclose()
    counts_of(store).start()  # as for a call that leaves later
    watch_of(store).start()
    await until_async(lambda: asyncio.to_thread(lambda: seen_at(redis_url)))
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    await until_async(lambda: asyncio.to_thread(lambda: connections_of(redis_server) == before))


@pytest.mark.anyio
async def test_closing_during_an_outage_asks_once(clock: SteppedClock) -> None:
    """However many minutes are unwritten: each would wait as long for an answer."""
    store, tries = MemoryStore(clock=clock), list[str]()

    async def no_answer(name: str, *arguments: object, **options: object) -> None:
        tries.append(name)
        raise StoreTimeout("no answer")

    with mock.patch.object(type(store.documents), "write_part", side_effect=no_answer):
        for _ in range(5):
            await Limiter("3/minute", store=store, name="mails").rate_limit("ann")
            await summary(store)
            clock.advance(60)
        tries.clear()
        await counts_of(store).run()
    assert len(tries) == 1
    assert await seen(store) == {"mails": (5, 0, 0)}
