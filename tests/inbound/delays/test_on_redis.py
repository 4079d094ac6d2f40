"""Requests that wait for slots in Redis, on a cluster, and while Redis is out."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import Limiter, MemoryStore, RedisStore, Rule
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.inbound.dependency import enforcer_of
from asgi_ratelimit.keys import header
from tests.support.asgi import http
from tests.support.redis_server import RedisServer
from tests.support.server import free_port
from tests.support.visitors import Site, Visitor

pytestmark = pytest.mark.anyio


async def visited(*visitors: Visitor, on_error: Any, **options: Any) -> list[Event]:
    """What these visitors of a site were decided whose Redis does not exist."""
    seen: list[Event] = []
    store = RedisStore(f"redis://127.0.0.1:{free_port()}", on_error=on_error)
    site = Site("20/s burst 1", store=store, max_delay=60.0, hooks=[seen.append], **options)
    await asyncio.gather(*[visit(site, visitor) for visitor in visitors])
    await store.aclose()
    return seen


async def stop(scope: Scope, receive: Receive, send: Send) -> None:
    """An app whose server stops."""
    await send({"type": "lifespan.shutdown.complete"})


async def visit(site: Site, visitor: Visitor) -> None:
    """Send the request of a visitor, in real time."""
    await site.app(http(headers=[(b"x-client", b"ann")], visitor=visitor), visitor.receive, visitor.send)


async def test_the_local_limit_lets_them_wait() -> None:
    """Their slots are those of this process's own line."""
    visitors = [Visitor() for _ in range(4)]
    seen = await visited(*visitors, on_error="local")
    assert [visitor.status for visitor in visitors] == [200] * 4
    assert all(event.decision.degraded for event in seen)
    assert [event.decision.delay > 0 for event in seen] == [False, True, True, True]
    slots = sorted(event.decision.ready_at for event in seen)
    assert [round(later - earlier, 3) for earlier, later in pairwise(slots)] == [0.05] * 3


@pytest.mark.parametrize(("on_error", "later"), [("local", 200), ("allow", 200), ("deny", 503)])
async def test_an_outage_during_the_wait_ends_in_what_on_error_says(on_error: Any, later: int) -> None:
    """A place is taken here, beside a slot in Redis, and comes back; or there is none; or nobody may pass."""
    with RedisServer() as server:
        store = RedisStore(server.url, on_error=on_error)
        site = Site("1 at once", store=store, rules=[Rule("/", "4/s burst 1", max_delay=60.0)])
        first, second, third = Visitor(), Visitor(), Visitor()
        await visit(site, first)
        waiting = asyncio.ensure_future(visit(site, second))
        await second.is_read.wait()  # as soon as it waits
        await asyncio.sleep(0.05)  # and its take is sent
        server.stop()
        await waiting
        await visit(site, third)
        await store.aclose()
    assert [first.status, second.status, third.status] == [200, later, later]


def test_event_loops_in_threads_count_who_waits(request: pytest.FixtureRequest) -> None:
    """Each request once, and not for ever."""
    enforcer = enforcer_of(MemoryStore())
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(partial(enforcer.count_waiting, "ann"), [1, -1] * 20_000))
    assert dict(enforcer.waiting) == {}


async def test_on_redis_no_slot_is_left_out_or_used_twice(redis_url: str) -> None:
    """Also where the denial cache has refused a request before it is booked."""
    seen: list[Event] = []
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    site = Site("10/s burst 1", store=store, max_delay=60.0, hooks=[seen.append])
    await asyncio.gather(*[visit(site, Visitor()) for _ in range(8)])
    await store.aclose()
    slots = sorted(event.decision.ready_at for event in seen)
    assert [round(later - earlier, 3) for earlier, later in pairwise(slots)] == [0.1] * 7


@pytest.mark.usefixtures("unpublished", "unwatched")
async def test_on_redis_a_request_that_is_cancelled_twice_gives_its_slot_back(redis_url: str) -> None:
    """At any time while it is booked or waits, one step of the loop after the other; no task is left of it."""
    before = asyncio.all_tasks()
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    site = Site("1/hour burst 1", store=store, max_delay=90_000.0)
    await visit(site, Visitor())
    requests = []
    for steps in range(12):
        requests.append(asyncio.ensure_future(visit(site, Visitor())))
        for _ in range(steps):
            await asyncio.sleep(0)
    for _ in range(2):
        for request in requests:
            request.cancel()
        await asyncio.sleep(0)
    await asyncio.wait(requests)
    site.middleware.app = stop
    stopping = site.middleware({"type": "lifespan"}, Visitor().receive, Visitor().send)
    await asyncio.wait_for(stopping, 60.0)  # and does not wait for their slots
    assert {repr(task) for task in asyncio.all_tasks() - before} == set()
    again = RedisStore(redis_url, timeout=30, on_error="deny")
    key = header("x-client").of(http(headers=[(b"x-client", b"ann")]))
    assert (await Limiter("1/hour burst 1", store=again).pace(key)).delay <= 3600.0
    await again.aclose()


@pytest.mark.usefixtures("unpublished", "unwatched")
async def test_requests_that_are_not_admitted_leave_no_keys(redis_url: str) -> None:
    """Neither those that wait and go, nor those that an inner limit refuses: any number of them costs nothing."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    waits = Site("1/hour burst 1", store=store, max_delay=90_000.0, name="waits")
    inner = Site("1/hour", store=store, name="inner")
    outer = Site("100/hour", store=store, name="outer")
    outer.middleware.app = inner.middleware
    for _ in range(20):
        visitor = Visitor()
        request = asyncio.ensure_future(visit(waits, visitor))
        await asyncio.wait((request, asyncio.ensure_future(visitor.is_read.wait())), return_when="FIRST_COMPLETED")
        visitor.gone.set()
        await request
        await visit(outer, Visitor())
    await store.aclose()
    async with Redis.from_url(redis_url) as redis:
        assert len(await redis.keys()) == 3
