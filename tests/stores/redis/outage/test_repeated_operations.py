"""An operation of an outage that is sent again when Redis has been charged with it: all who did settle it, once."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter, Ticket
from asgi_ratelimit.quotas import FixedWindow, Quota, TokenBucket
from asgi_ratelimit.stores import RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.stores.redis.outage.test_settling import KINDS, Outage
from tests.support.proxy import Proxy

pytestmark = pytest.mark.anyio

WHO = pytest.mark.parametrize("is_other", [False, True], ids=["the same process", "another process"])


@asynccontextmanager
async def repeating(outage: Outage, proxy: Proxy, is_other: bool, quota: Quota | None = None) -> AsyncIterator[Limiter]:
    """Who sends the operation again: the process of the outage, or another one."""
    if not is_other:
        yield outage.limiter
        return
    quotas = outage.limiter.quotas if quota is None else (quota,)
    async with Limiter(quotas, store=RedisStore(proxy.url, timeout=30)) as limiter:
        yield limiter


async def decided_in_outage(outage: Outage) -> Decision:
    """An operation of four units, beside three of others, which Redis is charged with by now."""
    await outage.limiter.rate_limit("key", 3)
    await outage.begin()
    decision = await outage.limiter.rate_limit("key", 4, operation="id")
    assert decision.degraded
    await outage.end(20 - 7)
    return decision


async def again(limiter: Limiter) -> Decision:
    """The operation once more, as it comes to whoever settles it."""
    decision = await limiter.rate_limit("key", 4, operation="id")
    assert (decision.allowed, decision.degraded, decision.repeated_us is None) == (True, False, False)
    copy: Decision = pickle.loads(pickle.dumps(decision))
    return copy


@KINDS
@WHO
@pytest.mark.parametrize("actual", [0, 1, 4, 7])
async def test_what_is_repeated_is_settled(proxy: Proxy, quota: Quota, is_other: bool, actual: int) -> None:
    """More is debited, less comes back; once, whoever settles it again."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        first = await decided_in_outage(outage)
        async with repeating(outage, proxy, is_other) as repeater:
            decision = await again(repeater)
            await repeater.settle(decision, actual)
            await outage.until_left(20 - 3 - actual)
            if actual != 4:
                await repeater.settle(replace(decision, settled=False), 2)
                await limiter.settle(first, 2)
                assert (await limiter.peek("key")).remaining == 20 - 3 - actual


@KINDS
@WHO
async def test_the_process_of_the_outage_settles_first(proxy: Proxy, quota: Quota, is_other: bool) -> None:
    """Then those that repeat the operation have no effect."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        first = await decided_in_outage(outage)
        async with repeating(outage, proxy, is_other) as repeater:
            decision = await again(repeater)
            await limiter.settle(first, 6)
            await outage.until_left(20 - 3 - 6)
            await repeater.settle(decision, 1)
            assert (await limiter.peek("key")).remaining == 20 - 3 - 6


@KINDS
@WHO
async def test_it_was_settled_during_the_outage(proxy: Proxy, quota: Quota, is_other: bool) -> None:
    """What is repeated afterwards has no effect, also where less than the cost is left."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        await limiter.settle(await limiter.rate_limit("key", 4, operation="id"), 1)
        await outage.end(20 - 3 - 1)
        async with repeating(outage, proxy, is_other) as repeater:
            await repeater.refund(await again(repeater))
            assert (await limiter.peek("key")).remaining == 20 - 3 - 1


@KINDS
@WHO
async def test_a_block_of_spend_that_repeats_it(proxy: Proxy, quota: Quota, is_other: bool) -> None:
    """Its end settles the actual cost."""
    outage = Outage(quota, proxy)
    async with outage.limiter:
        await decided_in_outage(outage)
        async with repeating(outage, proxy, is_other) as repeater:
            async with repeater.spend("key", 4, operation="id") as spent:
                spent.settle(8)
            await outage.until_left(20 - 3 - 8)


@KINDS
@WHO
async def test_what_is_repeated_and_refunded_can_be_taken_anew(proxy: Proxy, quota: Quota, is_other: bool) -> None:
    """It is forgotten, whoever gave it back, and the old decision has no effect on the new one."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        first = await decided_in_outage(outage)
        async with repeating(outage, proxy, is_other) as repeater:
            await repeater.refund(await again(repeater))
            await outage.until_left(20 - 3)
            anew = await repeater.rate_limit("key", 4, operation="id")
            assert anew.repeated_us is None
            await limiter.refund(first)
            await outage.until_left(20 - 7)
            await repeater.settle(anew, 5)
            await outage.until_left(20 - 8)


@KINDS
@WHO
async def test_a_best_effort_that_is_repeated(proxy: Proxy, quota: Quota, is_other: bool) -> None:
    """All are granted what the first one was, and settle that."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        assert (await limiter.rate_limit("key", 30, best_effort=True, operation="id")).granted == 17
        await outage.end(0)
        async with repeating(outage, proxy, is_other) as repeater:
            decision = await repeater.rate_limit("key", 30, best_effort=True, operation="id")
            assert (decision.degraded, decision.granted) == (False, 17)
            await repeater.settle(decision, 5)
            await outage.until_left(20 - 3 - 5)


@WHO
async def test_two_charges_that_are_repeated(proxy: Proxy, is_other: bool) -> None:
    """Each is settled by itself: one of them up, and one down."""
    quotas = (TokenBucket(20, 3600, name="tokens"), FixedWindow(30, 86_400 * 365, name="window"))
    outage = Outage(quotas, proxy)  # type: ignore[arg-type]  # a limiter has several as well
    async with outage.limiter as limiter:
        await outage.begin()
        await limiter.rate_limit("key", {"tokens": 4, "window": 5}, operation="id")
        await outage.end(16)
        async with repeating(outage, proxy, is_other) as repeater:
            decision = await repeater.rate_limit("key", {"tokens": 4, "window": 5}, operation="id")
            await repeater.settle(decision, {"tokens": 6, "window": 1})
            peeked = await limiter.peek("key")
            assert [state.remaining for state in peeked.states] == [14, 29]


@KINDS
async def test_what_another_version_of_the_quota_repeats(proxy: Proxy, quota: Quota) -> None:
    """It is settled under the quota of the outage."""
    outage = Outage(quota, proxy)
    async with outage.limiter:
        await decided_in_outage(outage)
        raised = replace(quota, limit=quota.limit * 2)
        async with repeating(outage, proxy, True, raised) as repeater:
            decision = await again(repeater)
            assert decision.quota == quota
            await repeater.settle(decision, 1)
            await outage.until_left(20 - 3 - 1)


@asynccontextmanager
async def run_off(proxy: Proxy, is_other: bool) -> AsyncIterator[tuple[Limiter, Limiter]]:
    """A limiter whose bucket has drained by the end of an outage, but for one unit of an operation of four, which Redis
    was charged with, and five that others have taken since; and who sends the operation again."""
    clock, quota = SteppedClock(), TokenBucket(20, 3600)
    outage = Outage(quota, proxy)
    outage.limiter = Limiter(quota, store=RedisStore(proxy.url, timeout=30, clock=clock))
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        await limiter.rate_limit("key", 4, operation="id")
        clock.advance(180 * 6)
        await outage.end(20 - 1)
        await limiter.rate_limit("key", 5)
        async with Limiter(quota, store=RedisStore(proxy.url, timeout=30, clock=clock)) as other:
            yield limiter, other if is_other else limiter


@WHO
@pytest.mark.parametrize(("actual", "used"), [(0, 0), (1, 0), (3.5, 0.5), (6, 3)])
async def test_what_has_run_off(proxy: Proxy, is_other: bool, actual: float, used: float) -> None:
    """No more comes back than Redis was charged with, and nothing of others."""
    async with run_off(proxy, is_other) as (limiter, repeater):
        await repeater.settle(await again(repeater), actual)
        assert (await limiter.peek("key")).remaining == int(20 - 5 - used)


@WHO
async def test_a_ticket_of_what_has_run_off(proxy: Proxy, is_other: bool) -> None:
    """It gives back the rest, and the operation can be taken anew."""
    async with run_off(proxy, is_other) as (limiter, repeater):
        ticket = await repeater.reserve("key", 4, operation="id")
        assert Ticket.parse(str(ticket)) == ticket
        assert ticket.ticket_charges[0].cost == 4
        await limiter.cancel(Ticket.parse(str(ticket)))
        assert (await limiter.peek("key")).remaining == 20 - 5
        assert (await repeater.reserve("key", 4, operation="id")).id != ticket.id
        assert (await limiter.peek("key")).remaining == 20 - 9


@WHO
async def test_a_ticket_of_an_operation_that_is_repeated(proxy: Proxy, is_other: bool) -> None:
    """Who cancels it gives back what was charged, once, and it cannot be redeemed."""
    outage = Outage(TokenBucket(20, 3600), proxy)
    async with outage.limiter as limiter:
        await outage.begin()
        first = await limiter.reserve("key", 4, operation="id")
        await outage.end(16)
        async with repeating(outage, proxy, is_other) as repeater:
            ticket = await repeater.reserve("key", 4, operation="id")
            await repeater.cancel(ticket)
            await outage.until_left(20)
            assert not await repeater.redeem(str(ticket))
            await limiter.rate_limit("key", 2)
            await limiter.cancel(first)
            assert (await limiter.peek("key")).remaining == 18
