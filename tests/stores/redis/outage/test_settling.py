"""What was decided while Redis was out is settled where its charge is by then: in this process, or in Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.support.proxy import Proxy
from tests.support.trial import until_left

pytestmark = pytest.mark.anyio

QUOTAS = [TokenBucket(20, 3600), FixedWindow(20, 86_400 * 365), RollingWindow(20, 3600)]
KINDS = pytest.mark.parametrize("quota", QUOTAS, ids=["bucket", "fixed", "rolling"])


def nonsense(answer: bytes) -> bytes:
    """In place of an answer of the script; connecting goes well."""
    return b":5\r\n" if answer.startswith(b"*") else answer


class Outage:
    """A limiter whose Redis can be made to go out and to come back."""

    def __init__(self, quota: Quota, proxy: Proxy) -> None:
        self.limiter = Limiter(quota, store=RedisStore(proxy.url, timeout=30))
        self._proxy = proxy

    async def begin(self) -> None:
        """Redis answers nonsense from now on."""
        self._proxy.mangle = nonsense
        assert (await self.limiter.rate_limit("other")).degraded

    async def end(self, remaining: int) -> None:
        """Redis answers again, and has so many units left, the ledger included."""
        self._proxy.mangle = bytes
        for _ in range(1_000):
            if not (await self.limiter.rate_limit("other", 0.0001)).degraded:
                break
            await asyncio.sleep(0.01)
        await self.until_left(remaining)

    async def until_left(self, remaining: int) -> None:
        """Return when so many units are left."""
        await until_left(self.limiter, remaining)


@KINDS
async def test_a_refund_during_the_outage(proxy: Proxy, quota: Quota) -> None:
    """What is left of it is charged to Redis."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        decisions = [await limiter.rate_limit("key", cost) for cost in (4, 5, 6)]
        await limiter.refund(decisions[0])
        await limiter.settle(decisions[1], 1)
        await outage.end(20 - 3 - 1 - 6)


@KINDS
async def test_a_refund_after_the_outage(proxy: Proxy, quota: Quota) -> None:
    """It is given back in Redis, once; and so is a debit charged there."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        decisions = [await limiter.rate_limit("key", cost) for cost in (4, 5, 1)]
        await outage.end(20 - 13)
        copy = replace(decisions[0])
        for decision in (decisions[0], copy):
            await limiter.refund(decision)
        await outage.until_left(11)
        await limiter.settle(decisions[1], 2)
        await outage.until_left(14)
        await limiter.settle(decisions[2], 3)
        await outage.until_left(12)


@KINDS
async def test_an_operation_of_the_outage(proxy: Proxy, quota: Quota) -> None:
    """It is charged to Redis once, answered there as allowed, and settled there."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        decision = await limiter.rate_limit("key", 4, operation="id")
        assert await limiter.rate_limit("key", 4, operation="id") == decision
        await outage.end(20 - 7)
        async with Limiter(quota, store=RedisStore(proxy.url, timeout=30)) as other:
            assert (await other.rate_limit("key", 4, operation="id")).allowed
        assert (await limiter.peek("key")).remaining == 13
        await limiter.settle(decision, 1)
        await outage.until_left(16)


@KINDS
@pytest.mark.parametrize("is_over", [False, True], ids=["during", "after"])
async def test_a_ticket_of_the_outage_that_is_cancelled(proxy: Proxy, quota: Quota, is_over: bool) -> None:
    """Its units come back, and it cannot be redeemed."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        tickets = [await limiter.reserve("key", 4) for _ in range(2)]
        if is_over:
            await outage.end(20 - 11)
        for _ in range(2):
            await limiter.cancel(tickets[0])
        await (outage.until_left(13) if is_over else outage.end(13))
        assert not await limiter.redeem(str(tickets[0]))
        assert [(await limiter.redeem(str(tickets[1]))).allowed for _ in range(2)] == [True, False]
        await limiter.cancel(tickets[1])
        assert (await limiter.peek("key")).remaining == 13


async def test_a_ticket_of_another_process_s_outage(proxy: Proxy) -> None:
    """Where its units are is not known there: they stay charged, but it cannot be redeemed."""
    outage = Outage(TokenBucket(20, 3600), proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        ticket = await limiter.reserve("key", 4)
        await outage.end(13)
        async with Limiter(TokenBucket(20, 3600), store=RedisStore(proxy.url, timeout=30)) as other:
            await other.cancel(ticket)
            assert not await other.redeem(ticket)
        assert (await limiter.peek("key")).remaining == 13


async def test_what_fails_to_be_repaid_stays_in_the_ledger(proxy: Proxy) -> None:
    """Redis goes out again in the middle of it: it is charged in the end, and once."""
    outage = Outage(TokenBucket(20, 3600), proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        await limiter.rate_limit("key", 4)
        answers = []

        def only_one(answer: bytes) -> bytes:
            if answer.startswith(b"*"):
                answers.append(answer)
            return answer if len(answers) == 1 else nonsense(answer)

        for _ in range(3):  # a probe succeeds, and then the repayment is carried out, but its answer is lost
            answers.clear()
            proxy.mangle = only_one
            for _ in range(1_000):
                if len(answers) > 1:
                    break
                await limiter.rate_limit("other", 0.0001)
                await asyncio.sleep(0.01)
        await outage.end(13)


@KINDS
async def test_a_refund_after_a_repayment_that_was_sent_twice(proxy: Proxy, quota: Quota) -> None:
    """Its first answer was lost; the second one says where its units are all the same."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        await outage.begin()
        decisions = [await limiter.rate_limit("key", 4), await limiter.rate_limit("key", 2, operation="id")]
        answers = []

        def second_is_lost(answer: bytes) -> bytes:
            answers.append(answer.startswith(b"*"))
            return b":5\r\n" if answers.count(True) == 2 and answers[-1] else answer

        proxy.mangle = second_is_lost  # the first one is that of the probe
        for _ in range(1_000):
            if answers.count(True) >= 3:
                break
            await limiter.rate_limit("other", 0.0001)
            await asyncio.sleep(0.01)
        await outage.end(20 - 9)
        for decision in decisions:
            await limiter.refund(decision)
        await outage.until_left(17)


@KINDS
async def test_a_refund_of_an_operation_that_redis_had_carried_out(proxy: Proxy, quota: Quota) -> None:
    """Both of its answers were lost, so this process decided it, too: it is charged once, and given back once."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        proxy.mangle = nonsense
        decision = await limiter.rate_limit("key", 4, operation="id")
        assert decision.degraded
        await outage.end(20 - 7)
        await limiter.refund(decision)
        await outage.until_left(17)


@KINDS
async def test_an_operation_that_comes_again_in_a_later_outage(proxy: Proxy, quota: Quota) -> None:
    """It takes nothing from what others have taken meanwhile, which is charged in full."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        for remaining in (12, 9):
            await outage.begin()
            await limiter.rate_limit("key", 2, operation="id")
            await limiter.rate_limit("key", 3)
            await outage.end(remaining)


@KINDS
@pytest.mark.parametrize("is_over", [False, True], ids=["during", "after"])
async def test_a_refunded_operation_that_redis_may_have_carried_out(proxy: Proxy, quota: Quota, is_over: bool) -> None:
    """Its units come back there, too, and it is forgotten: taken again, it is charged again."""
    outage = Outage(quota, proxy)
    async with outage.limiter as limiter:
        await limiter.rate_limit("key", 3)
        proxy.mangle = nonsense
        decision = await limiter.rate_limit("key", 4, operation="id")
        assert decision.degraded
        if is_over:
            await outage.end(13)
        await limiter.refund(decision)
        await (outage.until_left(17) if is_over else outage.end(17))
        assert (await limiter.rate_limit("key", 4, operation="id")).allowed
        await outage.until_left(13)
