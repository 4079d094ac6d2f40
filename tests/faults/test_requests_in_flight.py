"""Requests in flight: over four workers, with clients that break off and a worker that is killed; and in outages."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack

import httpx
import pytest
from redis import Redis
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import Limiter, PaceTimeout, RateLimitMiddleware, RedisStore
from asgi_ratelimit.decision import OnError
from asgi_ratelimit.leases import leases_of
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok
from tests.support.export_app import LIMIT, NAME
from tests.support.overriding import until, until_async, until_back
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn
from tests.support.trial import PATIENT

APP = "tests.support.export_app:app"
NAMES = ["ann", "bob", "eve", "joe"]
REQUESTS = 3
WITHIN = 60.0


class Crowd:
    """Clients with a few names, which read streams, or break them off."""

    def __init__(self, url: str) -> None:
        self.statuses: Counter[int] = Counter()
        self.workers: set[int] = set()
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.AsyncClient(base_url=url, limits=limits, timeout=WITHIN, trust_env=False)

    async def visit(self, number: int) -> None:
        """Send some requests, each over a connection of its own."""
        chance, headers = random.Random(number), {"x-client": NAMES[number % len(NAMES)]}
        for _ in range(REQUESTS):
            try:
                async with self.client.stream("GET", "/", headers=headers) as answer:
                    self.statuses[answer.status_code] += 1
                    if answer.status_code == 200:
                        self.workers.add(int(answer.headers["x-worker"]))
                    async for _ in answer.aiter_raw():
                        if chance.random() < 0.2:
                            break
            except httpx.TransportError:  # of a worker that was killed
                self.statuses[0] += 1


@pytest.mark.anyio
@pytest.mark.parametrize(("clients", "is_killed"), [(80, False), pytest.param(200, True, marks=pytest.mark.long)])
async def test_no_more_than_the_limit_are_ever_under_way(clients: int, is_killed: bool) -> None:
    """An independent counter says so; then every place is there again, those of a killed worker in half a minute."""
    with RedisServer() as server, Uvicorn(APP, "--workers", "4", env={"STORE": server.url}) as uvicorn:
        crowd, counter, store = Crowd(uvicorn.url), Redis.from_url(server.url), RedisStore(server.url)
        async with crowd.client, asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(crowd.visit(number))
            if is_killed:
                await until(lambda: len(crowd.workers) > 1)
                victim = crowd.workers.pop()
                counter.sadd("killed", victim)
                os.kill(victim, signal.SIGKILL)
        assert [score for _, score in counter.zrange("most", -1, -1, withscores=True)] == [LIMIT]
        assert crowd.statuses[429] > 0
        limiter = Limiter(f"{LIMIT} at once", store=store, name=NAME)

        async def are_free() -> bool:
            return all([(await limiter.peek(name)).remaining == LIMIT for name in NAMES])

        await until_async(are_free)
        await store.aclose()
        counter.close()


@pytest.mark.anyio
@pytest.mark.parametrize("on_error", ["allow", "deny"])
async def test_an_outage_without_limits_leaves_nothing_behind(
    line: Proxy, server: RedisServer, on_error: OnError
) -> None:
    """``"allow"`` lets all pass, ``"deny"`` none, and neither holds a place; what ends meanwhile comes back later."""
    clock, under_way, ends = SteppedClock(), list[Scope](), asyncio.Event()  # no lease ends by itself
    store = RedisStore(line.url, timeout=PATIENT, on_error=on_error, clock=clock)
    beside = RedisStore(server.url, timeout=30, clock=clock)
    limiter, seen = [Limiter("2 at once", store=each) for each in (store, beside)]

    async def export(scope: Scope, receive: Receive, send: Send) -> None:
        under_way.append(scope)
        await ends.wait()
        await ok(scope, receive, send)

    app = RateLimitMiddleware(export, "2 at once", store=store, key=lambda request: "key")

    def started(count: int) -> list[asyncio.Task[Peer]]:
        return [asyncio.create_task(ask(app, http())) for _ in range(count)]

    async def are_free() -> bool:
        return (await seen.peek("key")).remaining == 2

    async with AsyncExitStack() as before, AsyncExitStack() as meanwhile:
        held = await before.enter_async_context(limiter.hold("key"))
        requests = started(1)
        await until(lambda: under_way)
        assert (await seen.peek("key")).remaining == 0
        line.cut()
        requests += started(4)
        if on_error == "allow":
            await until(lambda: len(under_way) == 5)
            for _ in range(4):
                assert (await meanwhile.enter_async_context(limiter.hold("key", max_delay=0))).degraded
        else:
            for max_delay in (0, 60):
                with pytest.raises(PaceTimeout, match="the store is out"):
                    await meanwhile.enter_async_context(limiter.hold("key", max_delay=max_delay))
        await before.aclose()
        await leases_of(store).give_back(held)  # once more, which changes nothing
        ends.set()
        statuses = [(await request).status for request in requests]
        assert statuses == [200, *([200 if on_error == "allow" else 503] * 4)]
        line.target = server.port
        await until_async(are_free)
    assert await are_free()
    await beside.aclose()
    await store.aclose()


@pytest.mark.anyio
async def test_a_place_that_was_lost_and_one_that_was_given_back_in_an_outage(
    line: Proxy, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held, or free, as soon as the server is back, not only when leases are renewed, or end by themselves."""
    monkeypatch.setattr("asgi_ratelimit.leases.RENEWED_EVERY", 3600.0)
    clock = SteppedClock()
    store, beside = [RedisStore(url, timeout=PATIENT, clock=clock) for url in (line.url, server.url)]
    seen = Limiter("1 at once", store=beside)

    async def is_free() -> bool:
        return (await seen.peek("key")).remaining == 1

    async def is_held() -> bool:
        return not await is_free()

    async with Limiter("1 at once", store=store).hold("key"):
        line.cut()
        assert (await Limiter("1000/s", store=store, name="other").rate_limit("key")).degraded
        await seen.reset("key")
        assert await is_free()
        line.target = server.port
        await until_async(is_held)
        line.cut()
    assert await is_held()
    line.target = server.port
    await until_async(is_free)
    await store.aclose()
    await beside.aclose()


@pytest.mark.anyio
async def test_a_place_that_a_server_lost_by_a_restart_which_nobody_has_seen(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held again soon after the first call, not only when leases are renewed."""
    monkeypatch.setattr("asgi_ratelimit.leases.RENEWED_EVERY", 3600.0)
    async with Limiter("1 at once", store=RedisStore(server.url, timeout=PATIENT)) as limiter, limiter.hold("key"):
        await asyncio.to_thread(server.stop)  # meanwhile, the event loop sees that the connection is closed
        server.start()

        async def is_held() -> bool:
            return (await limiter.peek("key")).remaining == 0

        await until_async(is_held)


@pytest.mark.anyio
async def test_nobody_gets_a_place_that_is_held_as_the_server_comes_back_empty(
    line: Proxy, server: RedisServer
) -> None:
    """The first take after the outage finds it held, be it since before the outage or since then."""
    store, beside = [RedisStore(url, timeout=PATIENT) for url in (line.url, server.url)]
    limiter, other = Limiter("2 at once", store=store), Limiter("1000/s", store=store, name="other")
    async with limiter.hold("key", max_delay=0):
        line.cut()
        await until_back(other, is_out=True)
        async with limiter.hold("key", max_delay=0) as held:
            assert held.degraded
            await Limiter("2 at once", store=beside).reset("key")
            line.target = server.port
            await until_back(other)
            with pytest.raises(PaceTimeout):
                await limiter.hold("key", max_delay=0).__aenter__()
    await store.aclose()
    await beside.aclose()


@pytest.mark.anyio
async def test_a_place_that_was_given_back_between_two_outages(line: Proxy, server: RedisServer) -> None:
    """It is free in the second one, too, which it is held in by nobody."""
    async with Limiter("1 at once", store=RedisStore(line.url, timeout=PATIENT)) as limiter:
        other = Limiter("1000/s", store=limiter.store, name="other")
        for _ in range(2):
            line.cut()
            async with limiter.hold("key", max_delay=0) as held:
                assert held.degraded
                line.target = server.port
                await until_back(other)
