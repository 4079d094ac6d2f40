"""Operations, tickets and places on a cluster, whose takes may have parts in several slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from asgi_ratelimit import ConfigurationError, FixedWindow, InFlight, Limiter, RedisStore, TokenBucket
from asgi_ratelimit.algorithms.in_flight import InFlightState
from tests.support.overriding import until_async
from tests.support.redis_cluster import RedisCluster

pytestmark = pytest.mark.anyio

# A window that hardly ends during a test.
QUOTAS = [FixedWindow(10, 34_560_000, name="own"), TokenBucket(5, 3600, name="shared")]


@pytest.fixture
async def limiter(cluster: RedisCluster) -> AsyncIterator[Limiter]:
    """A limiter whose charges are on two nodes; a test fails where this process decides."""
    async with Limiter(QUOTAS, store=RedisStore(cluster.url, timeout=30, on_error="deny")) as made:
        yield made


@pytest.fixture
def key(cluster: RedisCluster) -> dict[str, str]:
    """Keys on two nodes."""
    return {"own": cluster.keys_on(0)[0], "shared": cluster.keys_on(1)[0]}


async def left(limiter: Limiter, key: dict[str, str]) -> list[int]:
    """The units that are left of each quota."""
    return [state.remaining for state in (await limiter.peek(key)).states]


async def test_an_operation_is_charged_once(limiter: Limiter, key: dict[str, str]) -> None:
    """Each of its parts is, however many callers send it at once."""
    decisions = await asyncio.gather(*[limiter.rate_limit(key, 2, operation="id") for _ in range(50)])
    assert [(decision.allowed, decision.remaining) for decision in decisions] == [(True, 3)] * 50
    assert await left(limiter, key) == [8, 3]


async def test_a_part_that_was_given_back_is_taken_anew(limiter: Limiter, key: dict[str, str]) -> None:
    """Where another part refuses, the operation is as if it had never come; later it is charged in full."""
    await limiter.rate_limit(key, {"shared": 4})
    for _ in range(3):
        assert not await limiter.rate_limit(key, 2, operation="id")
    assert await left(limiter, key) == [10, 1]
    await limiter.reset(key)
    for _ in range(3):
        assert await limiter.rate_limit(key, 2, operation="id")
    assert await left(limiter, key) == [8, 3]


async def test_a_part_that_another_caller_has_booked_stays_booked(limiter: Limiter, key: dict[str, str]) -> None:
    """A caller that only repeats it gives back what it was granted itself, where another part refuses."""
    await limiter.rate_limit(key, {"own": 2}, operation="id")
    await limiter.rate_limit(key, {"shared": 4})
    for _ in range(3):
        assert not await limiter.rate_limit(key, 2, operation="id")
    assert await left(limiter, key) == [8, 1]
    await limiter.reset({"shared": key["shared"], "own": "another"})
    decisions = [await limiter.rate_limit(key, 2, operation="id") for _ in range(2)]
    assert all(decision.repeated for decision in decisions)  # a part of the first one does
    assert await left(limiter, key) == [8, 3]


async def test_an_operation_is_settled_once(limiter: Limiter, key: dict[str, str]) -> None:
    """In all its parts."""
    decisions = [await limiter.rate_limit(key, 4, operation="id") for _ in range(3)]
    for decision in decisions:
        await limiter.settle(decision, {"own": 1, "shared": 3})
    assert await left(limiter, key) == [9, 2]


@pytest.mark.parametrize("is_one_key", [True, False])
async def test_a_ticket_is_used_once(limiter: Limiter, key: dict[str, str], is_one_key: bool) -> None:
    """Redeemed by one of ten workers, or cancelled: the other has no effect."""
    keys = "key" if is_one_key else key
    redeemed, cancelled = [str(await limiter.reserve(keys, 2)) for _ in range(2)]
    decisions = await asyncio.gather(*[limiter.redeem(redeemed) for _ in range(10)])
    assert sum(decision.allowed for decision in decisions) == 1
    for text in (redeemed, cancelled, cancelled):
        await limiter.cancel(text)
    assert not await limiter.redeem(cancelled)
    assert [state.remaining for state in (await limiter.peek(keys)).states] == [8, 3]


async def test_a_best_effort_needs_one_key(limiter: Limiter, key: dict[str, str]) -> None:
    """What it would grant depends on several nodes; charges of one key are on one."""
    with pytest.raises(ConfigurationError, match="best_effort on a cluster needs one key"):
        await limiter.rate_limit(key, 20, best_effort=True)
    assert (await limiter.rate_limit("key", 20, best_effort=True)).granted == 5


async def test_callers_of_all_processes_wait_for_a_place_in_order(running: RedisCluster, key: dict[str, str]) -> None:
    """One that gives up takes nothing, and all is there again at the end, but for what the rate was charged."""
    running.flush()
    quotas = [InFlight(1, name="own"), TokenBucket(100, 3600, name="shared")]
    stores = [RedisStore(running.url, timeout=30, on_error="deny") for _ in range(2)]
    limiters = [Limiter(quotas, store=store) for store in stores]
    steps, ends = list[int](), asyncio.Event()

    async def call(number: int) -> None:
        async with limiters[number % 2].hold(key):
            steps.append(number)
            await ends.wait()
            await limiters[0].peek(key)
            steps.append(number)

    async def are_in_line() -> bool:
        (places, _) = (await limiters[0].peek(key)).stored
        return isinstance(places, InFlightState) and len(places.leases) == len(calls)

    calls = []
    for number in range(6):
        calls.append(asyncio.create_task(call(number)))
        await until_async(are_in_line)
    calls[2].cancel()
    await asyncio.wait([calls[2]])
    ends.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert steps == [0, 0, 1, 1, 3, 3, 4, 4, 5, 5]
    assert await left(limiters[0], key) == [1, 95]
    for limiter in limiters:
        await limiter.aclose()
