"""A network to Redis that is slow, lossy or silent, and a Redis that is frozen."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from asgi_ratelimit.decision import Charge
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.limiter import SyncLimiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.support.proxy import Proxy
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST
from tests.support.trial import GRACE, PATIENT, QUOTA, Trial, frozen, hurried, settled, trial

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be frozen."""
    with RedisServer() as own:
        yield own


@asynccontextmanager
async def disturbed(proxy: Proxy, server: RedisServer, outages: int = 1) -> AsyncIterator[Trial]:
    """A trial over the proxy, after ten takes that Redis has decided."""
    async with trial(proxy.url, server, outages=outages) as tried:
        assert not any(d.degraded for d in await tried.takes(10))
        yield tried


# Silence


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode_responses", [False, True])
async def test_a_redis_that_is_frozen(server: RedisServer, protocol: int, decode_responses: bool) -> None:
    """Takes that wait are answered at the deadline, and later ones at once."""
    client = Redis.from_url(server.url, protocol=protocol, decode_responses=decode_responses)
    async with client, trial(client, server) as tried:
        await tried.takes(10)
        async with frozen(server):
            for _ in range(3):
                assert all(d.degraded for d in await tried.takes(300, "key {}"))


async def test_a_client_pause(server: RedisServer) -> None:
    """``CLIENT PAUSE`` is like a frozen Redis; a manual failover begins with one."""
    async with trial(server.url, server) as tried:
        await tried.takes(10)
        asked(server, "CLIENT", "PAUSE", 86_400_000)
        async with hurried():
            assert all(d.degraded for d in await tried.takes(30))
        server.kill()  # or nothing would end it, not even UNPAUSE
        server.start()


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


def test_threads_have_the_same_deadline(server: RedisServer) -> None:
    """And the same limiter in place of Redis."""
    limiter = SyncLimiter(QUOTA, store=RedisStore(server.url, timeout=1.5))
    assert [limiter.rate_limit("key").degraded for _ in range(8)] == [False] * 8
    server.pause()
    with ThreadPoolExecutor(10) as threads:
        decisions = list(threads.map(lambda _: limiter.rate_limit("key"), range(30), timeout=GRACE))
    assert all(decision.degraded for decision in decisions)
    assert sum(decision.allowed for decision in decisions) == QUOTA.burst
    server.resume()
    limiter.close()


# Slow networks


@pytest.mark.parametrize("delay", [0.02, 0.05])
async def test_a_network_that_is_slow_but_in_time(proxy: Proxy, redis_server: RedisServer, delay: float) -> None:
    """Redis decides everything: the takes that come meanwhile share a batch."""
    async with disturbed(proxy, redis_server, outages=0) as tried:
        proxy.delay = delay
        for _ in range(3):
            await tried.takes(100)
            await tried.takes(100, "key {}")
        assert tried.admitted() == QUOTA.burst


async def test_a_network_that_is_too_slow(proxy: Proxy, redis_server: RedisServer) -> None:
    """An answer after the deadline is discarded, and so is its connection."""
    async with disturbed(proxy, redis_server) as tried:
        proxy.delay = 2 * PATIENT
        async with hurried():
            assert all(d.degraded for d in await tried.takes(30))
            await asyncio.sleep(2 * PATIENT)  # until the answer comes
        proxy.delay = 0.0
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
        assert evaluations(redis_server) == 1
        await tried.until_back()
        assert (await tried.limiter.peek("key")).remaining <= QUOTA.burst - 11
        await tried.takes(30)
        assert tried.admitted() <= QUOTA.burst


def evaluations(server: RedisServer) -> int:
    """How often the script was called."""
    lines = asked(server, "INFO", "commandstats").decode().splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if "eval" in line)


def with_head(answer: bytes, *numbers: bytes) -> bytes:
    """The head of a reply: the mark of the answer that it is in place of, and these numbers."""
    head = b" ".join([answer.split(b"\r\n")[2].split(b" ")[0], *numbers])
    return b"\r\n$%d\r\n%b\r\n" % (len(head), head)


GARBAGE = {
    "cut short": lambda answer: answer[: len(answer) // 2],
    "garbled": lambda answer: b"!" + answer,
    "an unknown type": lambda answer: b"?5\r\n",
    "a number": lambda answer: b":5\r\n",
    "nothing": lambda answer: b"$-1\r\n",
    "a text": lambda answer: b"+OK\r\n",
    "an empty list": lambda answer: b"*0\r\n",
    "too short a head": lambda answer: b"*2" + with_head(answer, b"1", b"1") + b"$-1\r\n",
    "too long a head": lambda answer: b"*2" + with_head(answer, b"1", b"1", b"1", b"1") + b"$-1\r\n",
    "too many values": lambda answer: b"*6" + with_head(answer, b"1", b"1", b"1") + b"$-1\r\n" * 5,
    "too many verdicts": lambda answer: b"*2" + with_head(answer, b"1", b"1", b"11") + b"$-1\r\n",
    "a number as the value": lambda answer: b"*2" + with_head(answer, b"1", b"1", b"1") + b":1\r\n",
    "a number as the head": lambda answer: b"*2\r\n:1\r\n$-1\r\n",
    "no time": lambda answer: b"*2" + with_head(answer, b"noon", b"1", b"1") + b"$-1\r\n",
    "an error": lambda answer: b"-ERR no\r\n",
    "a list in a list": lambda answer: b"*2" + with_head(answer, b"1", b"1", b"1") + b"*0\r\n",
    "a redirection that cannot be read": lambda answer: b"-MOVED x\r\n",
    "an answer of another service": lambda answer: b"HTTP/1.1 400 Bad Request\r\n\r\n",
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


@pytest.mark.parametrize("answer", [b"-MOVED x\r\n", b"-ASK\r\n", b"-MOVED 1 host:\r\n"])
async def test_a_greeting_that_cannot_be_read(
    proxy: Proxy, redis_server: RedisServer, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    """It is a failure of Redis: logged once, and not tried again for each take."""
    async with disturbed(proxy, redis_server) as tried:
        await tried.takes(1)
        proxy.mangle = lambda _: answer
        proxy.disconnect()
        await tried.until_disconnected()
        connections, takes = proxy.connections, 200
        assert all([(await tried.take()).degraded for _ in range(takes)])
        assert 0 < proxy.connections - connections < takes / 2
        with pytest.raises(StoreError):
            await tried.limiter.peek("key")
        assert {record.name for record in caplog.records} == {"asgi_ratelimit"}
        proxy.mangle = bytes


async def test_an_answer_that_is_repeated(proxy: Proxy, redis_server: RedisServer) -> None:
    """The second copy is never taken for the answer to the next take."""
    async with disturbed(proxy, redis_server, outages=0) as tried:
        proxy.mangle = lambda answer: answer * 2 if answer.startswith(b"*") else answer
        for cost in range(1, 40):
            decision = await tried.limiter.take([Charge(TokenBucket(100, 3600), f"own {cost}", cost)])
            assert (decision.remaining, decision.degraded) == (100 - cost, False)
        proxy.mangle = bytes


async def test_an_answer_that_is_repeated_later(proxy: Proxy, redis_server: RedisServer) -> None:
    """Not even after the next take has been sent."""
    earlier = [b""]

    def with_earlier(answer: bytes) -> bytes:
        earlier.append(answer)
        return earlier[-2] + answer

    async with disturbed(proxy, redis_server) as tried:
        proxy.mangle = with_earlier
        assert not (await tried.take("a")).degraded
        assert (await tried.take("b")).degraded
        proxy.mangle = bytes


async def test_connections_that_are_lost(proxy: Proxy, redis_server: RedisServer) -> None:
    """No take notices when nothing is in flight."""
    async with disturbed(proxy, redis_server, outages=0) as tried:
        for number in range(5):
            proxy.disconnect()
            await tried.until_disconnected()
            await tried.takes(5, f"{number} {{}}")


async def test_connections_that_the_server_closes(server: RedisServer) -> None:
    """An idle store opens a new one, and no take is degraded."""
    async with trial(server.url, server, outages=0) as tried:
        for _ in range(5):
            assert await tried.takes(5)
            asked(server, "CLIENT", "KILL", "TYPE", "normal")
            await tried.until_disconnected()


async def test_a_connection_that_is_lost_with_a_call_in_flight(proxy: Proxy, redis_server: RedisServer) -> None:
    """That take is decided in this process, and the next probe succeeds."""
    async with disturbed(proxy, redis_server) as tried:
        asked(redis_server, "CONFIG", "RESETSTAT")
        proxy.delay = 0.2
        waiting = asyncio.create_task(tried.take())
        await settled(lambda: evaluations(redis_server) == 1)
        proxy.disconnect()
        proxy.delay = 0.0
        assert (await waiting).degraded


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
