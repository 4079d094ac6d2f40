"""A network to Redis that is slow, lossy or silent, a Redis that is frozen, and an attack on one key."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from asgi_ratelimit import Charge, TokenBucket
from tests.support.proxy import Proxy
from tests.support.redis_cluster import asked, script_calls
from tests.support.redis_server import RedisServer
from tests.support.server import HOST
from tests.support.trial import PATIENT, QUOTA, Trial, hurried, trial

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def disturbed(proxy: Proxy, server: RedisServer, outages: int = 1) -> AsyncIterator[Trial]:
    """A trial over the proxy, after ten takes that Redis has decided."""
    async with trial(proxy.url, server, outages=outages) as tried:
        assert not any(d.degraded for d in await tried.takes(10))
        yield tried


# Silence


async def test_no_take_waits_during_an_outage(server: RedisServer) -> None:
    """Each is decided in this process, without any wait: whether Redis is back is tried in the background."""
    async with trial(server.url, server) as tried:
        server.pause()
        async with hurried():
            await tried.until_degraded()
        takes, at_once = [], 0
        for number in range(300):
            takes.append(asyncio.create_task(tried.limiter.rate_limit(f"key {number}")))
            await asyncio.sleep(0)
            at_once += takes[-1].done() and takes[-1].result().degraded
            await asyncio.sleep(0.001)
        assert at_once == 300
        server.resume()
        await asyncio.gather(*takes)


async def test_a_port_that_swallows_connections() -> None:
    """They are neither accepted nor refused: the deadline covers connecting too."""
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen(0)
        full = [socket.socket() for _ in range(3)]
        for each in full:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        trying = Trial.on(f"redis://{HOST}:{silent.getsockname()[1]}", timeout=0.5)
        assert all(d.degraded for d in await trying.takes(30))
        await trying.limiter.aclose()
        for each in full:
            each.close()


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_a_port_that_is_silent(scheme: str) -> None:
    """It accepts connections, and sends nothing: the deadline covers the greeting and the TLS handshake too."""
    with socket.create_server((HOST, 0)) as silent:
        trying = Trial.on(f"{scheme}://{HOST}:{silent.getsockname()[1]}", timeout=0.5)
        assert all(d.degraded for d in await trying.takes(30))
        await trying.limiter.aclose()


# Slow networks


async def test_a_network_that_is_too_slow(proxy: Proxy, redis_server: RedisServer) -> None:
    """An answer after the deadline is discarded, and so is its connection."""
    async with disturbed(proxy, redis_server) as tried:
        proxy.delay = 2 * PATIENT
        async with hurried():
            assert all(d.degraded for d in await tried.takes(30))
            await asyncio.sleep(2 * PATIENT)  # until the answer comes
            proxy.delay = 0.0
            await asyncio.sleep(2 * PATIENT)  # and what answers a later trial
        await tried.until_back()
        connections = proxy.connections
        assert connections > 1
        keys = [f"own {number}" for number in range(50)]
        for cost, key in enumerate(keys, 1):
            decision = await tried.limiter.take([Charge(TokenBucket(100, 3600), key, cost)])
            assert decision.remaining == 100 - cost


# Lost and mangled answers


async def test_an_answer_that_is_lost_is_charged_once(proxy: Proxy, redis_server: RedisServer) -> None:
    """Redis has carried out the take, but the answer is lost: it is not sent again."""
    async with disturbed(proxy, redis_server) as tried:
        asked(redis_server, "CONFIG", "RESETSTAT")
        proxy.mangle = lambda answer: b""
        async with hurried():
            assert (await tried.take()).degraded
        proxy.mangle = bytes
        assert script_calls(redis_server) == 1
        await tried.until_back()
        assert (await tried.limiter.peek("key")).remaining <= QUOTA.burst - 11
        await tried.takes(30)
        assert tried.admitted() <= QUOTA.burst


GARBAGE = {
    "cut short": lambda answer: answer[: len(answer) // 2],
    "that of another call": lambda answer: re.sub(rb"^(\$\d+\r\n).{8}", rb"\1" + bytes(8), answer, flags=re.DOTALL),
    "a number": lambda answer: b":5\r\n",
    "a list in a list": lambda answer: b"*2\r\n$1\r\n1\r\n*0\r\n",
    "a redirection that cannot be read": lambda answer: b"-MOVED x\r\n",
}


@pytest.mark.parametrize("mangled", GARBAGE)
async def test_an_answer_that_makes_no_sense(proxy: Proxy, redis_server: RedisServer, mangled: str) -> None:
    """It is rejected, and the connection is closed."""
    async with disturbed(proxy, redis_server) as tried:
        proxy.mangle = GARBAGE[mangled]
        async with hurried():  # the rest of an answer may never come
            decisions = [await tried.take(), await tried.take()]
        assert all(d.degraded for d in decisions)
        proxy.mangle = bytes
        await tried.until_back()
        assert proxy.connections > 1


async def test_an_answer_that_is_repeated(proxy: Proxy, redis_server: RedisServer) -> None:
    """The second copy is never taken for the answer to the next take."""
    async with disturbed(proxy, redis_server, outages=0) as tried:
        proxy.mangle = lambda answer: answer * 2 if answer.startswith(b"$") else answer
        for cost in range(1, 40):
            decision = await tried.limiter.take([Charge(TokenBucket(100, 3600), f"own {cost}", cost)])
            assert (decision.remaining, decision.degraded) == (100 - cost, False)
        proxy.mangle = bytes


# Cancelled callers


async def test_a_flood_of_cancelled_takes(proxy: Proxy, redis_server: RedisServer) -> None:
    """No connection is lost, no other take is affected, and what was sent is charged once."""
    async with disturbed(proxy, redis_server, outages=0) as tried:
        proxy.delay = 0.005
        for number in range(40):
            cancelled = [asyncio.ensure_future(tried.limiter.rate_limit(f"gone {number}")) for _ in range(20)]
            staying = asyncio.create_task(tried.take(f"there {number}"))
            await asyncio.sleep(0.001 * (number % 8))
            for each in cancelled:
                each.cancel()
            assert not (await staying).degraded
            await asyncio.gather(*cancelled, return_exceptions=True)
        proxy.delay = 0.0
        assert proxy.connections == 1
        assert [d.remaining for d in tried.decisions[-40:]] == [QUOTA.burst - 1] * 40


# Load


@pytest.mark.parametrize("at_once", [1, 200, 1000])
async def test_an_attack_on_one_refused_key(server: RedisServer, at_once: int) -> None:
    """Five thousand requests make at most two calls to Redis a second, once their first batches are answered."""
    async with trial(server.url, server, outages=0) as tried:
        await tried.take("key", QUOTA.burst)
        asked(server, "CONFIG", "RESETSTAT")
        began = time.monotonic()
        for _ in range(5_000 // at_once):
            decisions = await tried.takes(at_once)
            assert not any(decision.allowed for decision in decisions)
        lasted = time.monotonic() - began
        assert script_calls(server) <= 20 + 2 * lasted
