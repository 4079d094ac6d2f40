"""Operations: takes with an id, which are charged once, on each store."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, RedisStore, Store
from asgi_ratelimit.outbound.outbound_limiter import OutboundLimiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.giving_back import BUCKET, KINDS, remaining_units

pytestmark = pytest.mark.anyio


@KINDS
async def test_an_operation_is_charged_once(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """However often it is sent, all are answered alike; another id, key or cost is another operation."""
    limiter = Limiter(quota, store=store)
    first = await limiter.rate_limit("key", 3, operation="id")
    await limiter.rate_limit("key", 2)
    clock.advance(1e-6)
    assert [await limiter.rate_limit("key", 3, operation="id") for _ in range(3)] == [first] * 3
    assert await remaining_units(limiter) == 5
    for key, cost, operation in (("key", 3, "other id"), ("other key", 3, "id"), ("key", 2, "id")):
        await limiter.rate_limit(key, cost, operation=operation)
    assert await remaining_units(limiter) == 0


@KINDS
async def test_all_verbs_that_take(store: Store, quota: Quota) -> None:
    """The same key and cost under the same id are charged once, whatever the verb."""
    limiter = Limiter(quota, store=store)
    paced = await limiter.pace("key", 2, operation="id")
    ticket = await limiter.reserve("key", 2, operation="id")
    assert (ticket.ready_at, ticket.id) == (paced.ready_at, (await limiter.reserve("key", 2, operation="id")).id)
    assert (await limiter.acquire("key", 2, operation="id")).ready_at == paced.ready_at
    async with limiter.spend("key", 2, operation="id") as spent:
        assert spent.decision.ready_at == paced.ready_at
    assert (await limiter.rate_limit("key", 2, operation="id")).allowed
    assert await remaining_units(limiter) == 8


async def test_a_refusal_is_not_kept(store: Store, clock: SteppedClock) -> None:
    """Whoever comes again when there is room is allowed, and is asked at the store: no denial is cached for it."""
    limiter = Limiter(TokenBucket(10), store=store)
    await limiter.rate_limit("key", 10)
    assert not await limiter.rate_limit("key", 2, operation="id")
    clock.advance(0.2)
    assert await limiter.rate_limit("key", 2, operation="id")
    assert await limiter.rate_limit("key", 2, operation="id")


@KINDS
async def test_an_operation_that_was_given_back_can_be_taken_anew(store: Store, quota: Quota) -> None:
    """By its decision or its ticket: it is charged again, once, and only the new one can be given back."""
    limiter = Limiter(quota, store=store)
    old = await limiter.rate_limit("key", 6, operation="id")
    copy = replace(old)
    await limiter.cancel(old)
    await limiter.rate_limit("key", 6, operation="id")
    await limiter.cancel(copy)
    assert await remaining_units(limiter) == 4
    ticket = await limiter.reserve("key", 2, operation="job")
    await limiter.cancel(ticket)
    assert (await limiter.reserve("key", 2, operation="job")).id != ticket.id
    assert await remaining_units(limiter) == 2


@KINDS
async def test_an_operation_is_forgotten_after_a_while(clock: SteppedClock, quota: Quota) -> None:
    """After the store's ``operation_ttl``, and not before."""
    limiter = Limiter(quota, store=MemoryStore(clock=clock, operation_ttl=60))
    first = await limiter.pace("key", operation="id")
    clock.advance(59.999999)
    assert (await limiter.pace("key", operation="id")).ready_at == first.ready_at
    clock.advance(1e-6)
    assert not (await limiter.pace("key", operation="id")).repeated


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TokenBucket(10, 3600), TokenBucket(20, 3600, burst=10)),
        (TokenBucket(10, 3600), TokenBucket(10, 60, burst=15, burst_allowance_factor=0.3, name="per-hour")),
        (TokenBucket(0.3, 1, burst=10.7, burst_allowance_factor=0.7), TokenBucket(20, 3600, name="per-second")),
        (FixedWindow(10, 3600), FixedWindow(20, 3600)),
        (RollingWindow(10, 3600), RollingWindow(20, 3600)),
    ],
)
@pytest.mark.parametrize("resent", [True, False])
async def test_an_operation_that_another_version_sends_again(
    store: Store, clock: SteppedClock, old: Quota, new: Quota, resent: bool
) -> None:
    """It gets the decision of the first one, and what that one settles is given back once, under both versions."""
    clock.move_to(3_600_000.0)
    before, after = (OutboundLimiter(each, 0.0, None, "default", store=store) for each in (old, new))
    free = await remaining_units(before), await remaining_units(after)
    decision = await before.rate_limit("key", 4, operation="id")
    if resent:
        again = await after.rate_limit("key", 4, operation="id")
        assert again.repeated
        decision = again
    await after.settle(decision, 1)
    await before.settle(decision, 1)
    assert (await remaining_units(before), await remaining_units(after)) == (free[0] - 1, free[1] - 1)


async def test_memory_remembers_a_bounded_number(clock: SteppedClock) -> None:
    """The oldest operations are forgotten first."""
    limiter = Limiter(TokenBucket(1000), store=MemoryStore(clock=clock, max_keys=3))
    first = [await limiter.rate_limit("key", operation=str(number)) for number in range(4)]
    again = [await limiter.rate_limit("key", operation=str(number)) for number in (3, 2, 1)]
    assert again == [first[3], first[2], first[1]]
    assert (await limiter.rate_limit("key", operation="0")).remaining == first[3].remaining - 1


async def test_what_is_over_takes_no_memory(clock: SteppedClock) -> None:
    """Neither operations nor settlements, although nobody sends them again."""
    limiter = Limiter(TokenBucket(1000), store=MemoryStore(clock=clock, operation_ttl=1))
    tracemalloc.start()
    for number in range(1000):
        await limiter.settle(await limiter.rate_limit("key", operation="id" * 500 + str(number)), 0.5)
        clock.advance(0.1)
    stored, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored < 200_000


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, "600", None, 0.0001])
def test_a_wrong_time_to_remember(ttl: Any) -> None:
    """Both stores refuse it, and show a right one."""
    for kind, arguments in ((MemoryStore, ()), (RedisStore, ("redis://localhost",))):
        with pytest.raises(ConfigurationError, match=r"operation_ttl must be seconds .*: operation_ttl=600"):
            kind(*arguments, operation_ttl=ttl)


@pytest.mark.parametrize("operation", ["", "i" * 1025, "ü" * 513, b"id", 7, ("id",)])
async def test_a_wrong_operation(store: Store, operation: Any) -> None:
    """Every verb refuses it with a right example, and charges nothing."""
    limiter = Limiter(BUCKET, store=store)
    for verb in (limiter.rate_limit, limiter.pace, limiter.reserve, limiter.acquire):
        with pytest.raises(ValueError, match=r"must be a text of at most 1024 bytes .*: operation=message\.id"):
            await verb("key", operation=operation)
    with pytest.raises(ValueError, match="operation must be"):
        limiter.spend("key", 1, operation=operation)
    assert await remaining_units(limiter) == 10


@KINDS
async def test_a_best_effort_is_another_operation(store: Store, quota: Quota) -> None:
    """Units that were not charged are never granted, whichever comes first."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 7)
    part = await limiter.rate_limit("key", 5, best_effort=True, operation="id")
    assert part.granted == 3
    assert not await limiter.rate_limit("key", 5, operation="id")
    assert await limiter.rate_limit("key", 5, best_effort=True, operation="id") == part
    assert await remaining_units(limiter) == 0
