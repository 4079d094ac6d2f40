"""One operation that several processes have taken, some of them without Redis: it counts once, and is settled once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.stores.redis.outage.test_settling import KINDS, nonsense
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.trial import until_left

pytestmark = pytest.mark.anyio

CUT_OFF = 3


@asynccontextmanager
async def processes(quota: Quota, proxy: Proxy, server: RedisServer) -> AsyncIterator[list[Limiter]]:
    """Limiters of one name in several processes: some behind the proxy, and the last one on the server itself."""
    urls = [proxy.url] * CUT_OFF + [server.url]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Limiter(quota, store=RedisStore(url, timeout=30))) for url in urls]


async def cut_off(limiters: Sequence[Limiter], proxy: Proxy) -> None:
    """Let those behind the proxy know the bucket, and lose their lines."""
    for limiter in limiters:
        assert not (await limiter.rate_limit("key", 2)).degraded
    proxy.mangle = nonsense
    for limiter in limiters[:CUT_OFF]:
        assert (await limiter.rate_limit("other", 0.0001)).degraded


async def back(limiters: Sequence[Limiter], proxy: Proxy, remaining: int) -> None:
    """Let the lines work again, until all is repaid and so many units are left."""
    proxy.mangle = bytes
    for limiter in limiters[:CUT_OFF]:
        for _ in range(1_000):
            if not (await limiter.rate_limit("other", 0.0001)).degraded:
                break
            await asyncio.sleep(0.01)
    for limiter in limiters:
        await until_left(limiter, remaining)


@KINDS
@pytest.mark.parametrize("actual", [1, 7], ids=["given back", "debited"])
@pytest.mark.parametrize("order", ["during", "after", "redis last"])
async def test_an_operation_of_several_processes_is_settled_once(
    proxy: Proxy, redis_server: RedisServer, quota: Quota, actual: int, order: str
) -> None:
    """By the first of all who hold it, whether its line was cut or not."""
    async with processes(quota, proxy, redis_server) as limiters:
        await cut_off(limiters, proxy)
        decisions = [await limiter.rate_limit("key", 4, operation="id") for limiter in limiters]
        assert [decision.degraded for decision in decisions] == [True] * CUT_OFF + [False]
        held = list(zip(limiters, decisions))
        if order == "after":
            await back(limiters, proxy, 20 - 8 - 4)
        for limiter, decision in held[:CUT_OFF] if order == "redis last" else held:
            await limiter.settle(decision, actual)
        await back(limiters, proxy, 20 - 8 - actual)
        for limiter, decision in held:
            await limiter.settle(replace(decision, settled=False), actual)
        await back(limiters, proxy, 20 - 8 - actual)


@KINDS
async def test_an_operation_that_only_processes_without_redis_have_taken(
    proxy: Proxy, redis_server: RedisServer, quota: Quota
) -> None:
    """It is charged once and settled once."""
    async with processes(quota, proxy, redis_server) as limiters:
        await cut_off(limiters, proxy)
        held = [(limiter, await limiter.rate_limit("key", 4, operation="id")) for limiter in limiters[:CUT_OFF]]
        await back(limiters, proxy, 20 - 8 - 4)
        for limiter, decision in held:
            await limiter.settle(decision, 6)
        await back(limiters, proxy, 20 - 8 - 6)


@KINDS
async def test_an_operation_that_is_undone_by_two_and_taken_anew(
    proxy: Proxy, redis_server: RedisServer, quota: Quota
) -> None:
    """It comes back once, and what is taken anew is charged and settled by itself, once as well."""
    async with processes(quota, proxy, redis_server) as limiters:
        await cut_off(limiters, proxy)
        cut, *_, connected = held = [(each, await each.rate_limit("key", 4, operation="id")) for each in limiters]
        await back(limiters, proxy, 20 - 8 - 4)
        for limiter, decision in (cut, connected):
            await limiter.refund(decision)
        await back(limiters, proxy, 20 - 8)
        anew = [(each, await each.rate_limit("key", 4, operation="id")) for each in limiters]
        assert (await connected[0].peek("key")).remaining == 20 - 8 - 4
        for limiter, decision in [*held, *anew, *anew]:
            await limiter.settle(replace(decision, settled=False), 3)
        assert (await connected[0].peek("key")).remaining == 20 - 8 - 3


async def test_two_operations_and_a_take_of_one_bucket(proxy: Proxy, redis_server: RedisServer) -> None:
    """Each is settled by itself: what is given back of one is never taken from another one's charge."""
    async with processes(RollingWindow(20, 3600), proxy, redis_server) as limiters:
        await cut_off(limiters, proxy)
        cut = limiters[0]
        plain = await cut.rate_limit("key", 2)
        first, second = [await cut.rate_limit("key", 3, operation=name) for name in ("first", "second")]
        connected = await limiters[-1].rate_limit("key", 3, operation="first")
        await back(limiters, proxy, 20 - 8 - 8)
        await cut.settle(plain, 1)
        await cut.settle(first, 1)
        await cut.settle(second, 2)
        await limiters[-1].settle(connected, 1)
        await back(limiters, proxy, 20 - 8 - 4)


@pytest.mark.parametrize("is_cut_off", [True, False])
async def test_tickets_of_one_operation_that_one_process_cancels(
    proxy: Proxy, redis_server: RedisServer, is_cut_off: bool
) -> None:
    """Its units come back once, and the ticket that Redis has given cannot be redeemed."""
    async with processes(TokenBucket(20, 3600), proxy, redis_server) as limiters:
        await cut_off(limiters, proxy)
        tickets = [await limiter.reserve("key", 4, operation="id") for limiter in limiters]
        await back(limiters, proxy, 20 - 8 - 4)
        at = 0 if is_cut_off else -1
        await limiters[at].cancel(tickets[at])
        await back(limiters, proxy, 20 - 8)
        assert not await limiters[1].redeem(tickets[-1])
        anew = await limiters[-1].reserve("key", 4, operation="id")
        assert (await limiters[1].redeem(anew)).allowed
        assert (await limiters[-1].peek("key")).remaining == 20 - 8 - 4
