"""A store whose Redis does not answer, or answers with errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
import redis

from asgi_ratelimit import Blocks, FixedWindow, Quota, RollingWindow, StoreUnavailable, TokenBucket
from asgi_ratelimit.hooks import StoreCall
from asgi_ratelimit.testing import SteppedClock
from tests.stores.redis.limiters import limiter_on
from tests.support.overriding import until, until_async, until_back
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """It has no room for anything while the block runs."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1")
        yield
        client.config_set("maxmemory", "0")


async def test_without_redis_a_peek_and_a_reset_raise() -> None:
    """They raise an error, because people call them, not requests."""
    async with limiter_on(RedisServer().url) as limiter:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
            await limiter.peek("key")
        assert raised.value.__cause__ is not None
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await limiter.reset("key")


@pytest.mark.parametrize(
    ("on_error", "allowed", "retry_after"),
    [
        ("local", [True, True, False], pytest.approx(1800, abs=60)),
        ("allow", [True, True, True], 0.0),
        ("deny", [False, False, False], 1.0),
    ],
)
async def test_without_redis_on_error_decides_a_take(on_error: str, allowed: list[bool], retry_after: float) -> None:
    """A limiter in this process decides, or all pass, or none; the decision is degraded."""
    async with limiter_on(RedisServer().url, TokenBucket(2, 3600), on_error=on_error) as limiter:
        decisions = [await limiter.rate_limit("key") for _ in range(3)]
    assert [decision.allowed for decision in decisions] == allowed
    assert [decision.granted for decision in decisions] == [int(each) for each in allowed]
    assert decisions[-1].retry_after == retry_after
    assert all(decision.degraded for decision in decisions)


async def test_a_share_that_would_fill_in_a_century_is_the_whole_quota() -> None:
    """A take never raises because of it."""
    quota = TokenBucket(10, 86_400, burst=1000, burst_allowance_factor=0.01)
    async with limiter_on(RedisServer().url, quota, replicas=8) as limiter:
        assert (await limiter.rate_limit("key", 900)).allowed


@pytest.mark.parametrize("quota", [TokenBucket(100, 3600), FixedWindow(100, 3600.0), RollingWindow(100, 3600.0)])
async def test_takes_of_different_costs_have_one_share(quota: Quota) -> None:
    """What is taken of a larger share, made for a large take, is taken of the usual one as well."""
    now, clock = 0.0, SteppedClock()
    async with limiter_on(RedisServer().url, quota, replicas=10, clock=clock) as limiter:
        for _ in range(10):
            slots = [await limiter.rate_limit("key", 50), await limiter.rate_limit("key"), await limiter.pace("key")]
            now += sum(each.granted for each in slots if not each.delay)
        assert 50 <= now <= 64
        clock.advance(2 * quota.period)
        assert not await limiter.rate_limit("key", 1000)
        later = sum([(await limiter.rate_limit("key")).granted for _ in range(20)])
    assert 5 <= later <= 10


async def test_a_server_that_goes_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """Takes are degraded in between, and each transition is logged once."""
    server = RedisServer()
    async with limiter_on(server.url) as limiter:
        for _ in range(2):
            assert {(await limiter.rate_limit("key", 0.1)).degraded for _ in range(5)} == {True}
            with server:
                await until_back(limiter, "key")
                assert {(await limiter.rate_limit("key", 0.1)).degraded for _ in range(5)} == {False}
        assert (await limiter.rate_limit("key", 0.1)).degraded
    levels = [record.levelno for record in caplog.records if record.name == "asgi_ratelimit"]
    assert levels == [logging.ERROR, logging.WARNING] * 2 + [logging.ERROR]


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("on_error", ["local", "allow", "deny"])
async def test_a_full_redis_that_has_room_again(server: RedisServer, on_error: str, looks: bool) -> None:
    """It is tried whether it can write, also where nothing is to be charged, or an app asks for blocks in each request.

    What it reads does not show that Redis can write.
    """
    async with limiter_on(server.url, on_error=on_error) as limiter:
        with full(server):
            assert (await limiter.rate_limit("key", 0.001)).degraded

        async def is_back() -> bool:
            if looks:
                with suppress(StoreUnavailable):
                    await limiter.peek("key")
            return not (await limiter.rate_limit("key", 0.001)).degraded

        await until_async(is_back)


async def test_a_second_settlement_does_not_overtake_one_that_waits(server: RedisServer) -> None:
    """Of any of its quotas: the first one counts, once Redis is back."""
    async with limiter_on(server.url, "9/day fixed; 9/week") as limiter:
        decision = await limiter.rate_limit("key", 1)
        with full(server):
            await limiter.settle(decision, 5)

        async def is_settled() -> bool:
            await limiter.settle(decision, 0)
            with suppress(StoreUnavailable):
                return [state.remaining for state in (await limiter.peek("key")).states] == [4, 4]
            return False

        await until_async(is_settled)


class BlackHole(Proxy):
    """A proxy that swallows requests while it has a delay."""

    async def _request(self, data: bytes) -> bytes:
        return b"" if self.delay else data


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("delays", [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)])
async def test_a_refund_whose_caller_is_gone(server: RedisServer, delays: tuple[int, int, int], turns: int) -> None:
    """It is carried out, although it was not sent yet; if Redis does not answer, or is out already, then later."""
    async with BlackHole(server.port) as proxy, limiter_on(proxy.url, "9/day fixed; 9/week", timeout=0.3) as limiter:
        proxy.delay = delays[0]
        decision = await limiter.rate_limit("ann", 5)
        for at, proxy.delay in enumerate(delays[1:]):  # the deadline of the refund is over with that of the last take
            taking = asyncio.ensure_future(limiter.rate_limit("key"))
            if at:
                refund = asyncio.ensure_future(limiter.refund(decision))
                for _ in range(turns):  # of the event loop, in which it is asked for, or waits
                    await asyncio.sleep(0)
                refund.cancel()
            assert (await taking).degraded == bool(proxy.delay)
        proxy.delay = 0.0

        async def is_carried_out() -> bool:
            await until_back(limiter, "key")
            return [state.remaining for state in (await limiter.peek("ann")).states] == [9, 9]

        await until_async(is_carried_out)


async def test_a_reset_forgets_what_was_taken_in_an_outage(server: RedisServer) -> None:
    """The outage ledger does not charge it afterwards, from whichever event loop."""
    async with limiter_on(server.url, "5/hour") as limiter:

        async def remaining() -> float:
            decision = await limiter.peek("key")
            await limiter.store.aclose()
            return decision.remaining

        with full(server):
            assert (await limiter.rate_limit("key", 3)).degraded
        await limiter.reset("key")
        assert await asyncio.to_thread(asyncio.run, remaining()) == 5
        with full(server):
            assert (await limiter.rate_limit("key", 5)).allowed


async def test_a_ticket_of_an_outage_gives_nothing_back_that_others_have_taken(server: RedisServer) -> None:
    """Redis remembers that it was cancelled, and gives back no units, as it was never asked for them."""
    async with limiter_on(server.url) as limiter:
        await limiter.rate_limit("key")
        with full(server):
            ticket = await limiter.reserve("key", 3)
        await until_back(limiter, "key")
        await limiter.cancel(ticket)
        assert (await limiter.peek("key")).remaining == 5
        assert not await limiter.redeem(ticket)


async def test_a_process_that_takes_nothing_notices_that_redis_is_back(server: RedisServer) -> None:
    """It then charges what was taken, carries out refunds, and a ticket that was cancelled meanwhile is void."""
    async with limiter_on(server.url) as other, Proxy(server.port) as line, limiter_on(line.url) as limiter:

        async def is_settled() -> bool:
            return [(await other.peek(key)).remaining for key in ("refunded", "taken", "cancelled")] == [10, 8, 10]

        decision = await limiter.rate_limit("refunded", 5)
        line.cut()
        await limiter.rate_limit("taken", 2)
        await limiter.refund(decision)
        ticket = await limiter.reserve("cancelled", 3)
        await limiter.cancel(ticket)
        line.target = server.port
        await until_async(is_settled)
        assert (await other.redeem(ticket)).reason == "refused: the ticket was redeemed or cancelled before"
        assert await is_settled()


async def test_who_takes_nothing_is_not_refused_by_an_outage_that_is_over(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nothing is to be charged then."""
    calls = list[StoreCall]()
    async with limiter_on(server.url, on_error="deny") as limiter:
        limiter.store.observe(SimpleNamespace(store_called=calls.append))
        server.stop()
        assert not await limiter.rate_limit("key")
        await until(lambda: len(calls) == 2)  # a trial has failed, too
        server.start()
        await until(lambda: "is back" in caplog.text)
        assert await limiter.rate_limit("key")


async def test_a_server_that_does_not_answer(server: RedisServer) -> None:
    """One batch waits for its deadline, and all others are decided at once, however many callers have patience."""
    failed: list[StoreCall] = []
    observer = SimpleNamespace(store_called=lambda call: failed.append(call) if call.error and call.size > 1 else None)
    async with limiter_on(server.url, timeout=0.2) as limiter:
        limiter.store.observe(observer)
        server.pause()
        decisions = await asyncio.gather(*[limiter.pace(f"key {number}", 60) for number in range(1000)])
        assert all(decision.degraded for decision in decisions)
        assert [str(call.error) for call in failed] == ["Redis did not answer within 0.2 s"]
        server.resume()


async def test_the_event_loop_never_looks_up_a_name_that_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would do so in the executor that the app uses too, or, under uvloop, log what a deadline cuts off."""
    looked_up: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *given, **_: looked_up.append(given))
    async with limiter_on("redis://no-such-host.invalid:6379", timeout=30) as limiter:
        with pytest.raises(StoreUnavailable, match=r"cannot be reached: no-such-host\.invalid: "):
            await limiter.peek("key")
        assert (await limiter.rate_limit("key")).degraded
    assert not looked_up


async def test_a_block_by_hand_that_fails_in_an_outage_does_not_come_later(server: RedisServer) -> None:
    """Its caller was told that nobody is blocked."""
    async with limiter_on(server.url) as limiter:
        blocks = Blocks(store=limiter.store, name="login")
        with full(server), pytest.raises(StoreUnavailable, match="'key' is not blocked"):
            await blocks.block("key", "1 hour")
        await until_back(limiter, "key")
        assert await blocks.blocked_for("key") == 0.0
