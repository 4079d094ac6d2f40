"""The end of an outage: Redis is charged with what was admitted meanwhile before it admits anything itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product

import pytest

from asgi_ratelimit import FixedWindow, Limiter, Quota, RedisStore, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.overriding import until_async, until_back
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.trial import PATIENT

pytestmark = pytest.mark.anyio

YEAR = 86_400 * 365
LIMIT = 10
KINDS: list[Callable[[float], Quota]] = [
    lambda limit: TokenBucket(limit, YEAR, name="quota"),
    lambda limit: FixedWindow(limit, YEAR, name="quota"),
    lambda limit: RollingWindow(limit, YEAR, name="quota"),
]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=["bucket", "fixed", "rolling"])


@pytest.mark.parametrize("quota", ["10/minute", "10/minute fixed", "20/minute rolling"])
async def test_a_client_below_its_limit(line: Proxy, server: RedisServer, quota: str) -> None:
    """It keeps going: what has come back during the outage is not charged at its end."""
    clock = SteppedClock()
    async with Limiter(quota, store=RedisStore(line.url, timeout=PATIENT, clock=clock)) as limiter:
        await limiter.rate_limit("other", 0.001)
        line.cut()
        await until_back(limiter, is_out=True)
        for _ in range(100):
            assert (await limiter.rate_limit("key")).allowed
            clock.advance(9.0)
        line.target = server.port
        await until_back(limiter)
        for _ in range(20):
            decision = await limiter.rate_limit("key")
            assert (decision.allowed, decision.degraded) == (True, False)
            clock.advance(9.0)


async def test_the_first_takes_of_all_keys(line: Proxy, server: RedisServer) -> None:
    """No key of any kind, limit and cost is granted more than its quota, however many there are in the ledger."""
    store = RedisStore(line.url, timeout=PATIENT)
    cases = [
        (Limiter(kind(limit), store=store, name=f"{number} {limit}"), limit, f"key of {cost}", cost)
        for number, kind in enumerate(KINDS)
        for limit, cost in product((1, 2, 7, 20), (0.5, 1, 2, 3, 7, 11, 20))
    ]
    first, *_ = cases
    await first[0].rate_limit("other", 0.1)
    line.cut()
    await until_back(first[0], is_out=True)
    granted = [0.0] * len(cases)

    async def take(at: int) -> bool:
        limiter, _, key, cost = cases[at]
        decision = await limiter.rate_limit(key, cost)
        granted[at] += decision.granted
        return decision.degraded

    for at, (_, limit, _, cost) in enumerate(cases):
        for _ in range(int(limit / cost)):
            assert await take(at)
    line.target = server.port

    async def are_back() -> bool:
        return not any(await asyncio.gather(*map(take, range(len(cases)))))

    await until_async(are_back)
    assert granted == [int(limit / cost) * cost for _, limit, _, cost in cases]
    await store.aclose()


@EACH_KIND
async def test_an_operation_after_the_outage(line: Proxy, server: RedisServer, kind: Callable[[float], Quota]) -> None:
    """It is charged once, and has the answer of the outage."""
    async with Limiter(kind(LIMIT), store=RedisStore(line.url, timeout=PATIENT)) as limiter:
        await limiter.rate_limit("other")
        line.cut()
        await until_back(limiter, is_out=True)
        assert (await limiter.rate_limit("key", 4, operation="id")).degraded
        line.target = server.port
        await until_back(limiter)
        for _ in range(3):
            decision = await limiter.rate_limit("key", 4, operation="id")
            assert (decision.allowed, decision.repeated) == (True, True)
        assert (await limiter.peek("key")).remaining == LIMIT - 4
