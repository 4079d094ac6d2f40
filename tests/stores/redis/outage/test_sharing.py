"""The outage ledger belongs to the store: to all of its event loops and threads, and to one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from asgi_ratelimit import Charge, FixedWindow, Limiter, Quota, RedisStore, RollingWindow, Take, TokenBucket
from asgi_ratelimit.clock import SystemClock
from asgi_ratelimit.stores.redis.outage import Outage
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT
from tests.support.trial import PATIENT

pytestmark = pytest.mark.filterwarnings("ignore")  # of connections that nobody has closed

QUOTAS = [TokenBucket(10, 86_400), FixedWindow(10, 86_400 * 365), RollingWindow(10, 86_400)]
QUOTA = QUOTAS[0]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, which is not running yet."""
    own = RedisServer()
    yield own
    own.stop()


def limiter_on(url: str, quota: Quota = QUOTA) -> Limiter:
    return Limiter(quota, store=RedisStore(url, timeout=PATIENT))


def left(url: str, quota: Quota) -> int:
    """What Redis has left of the key."""

    async def remaining() -> int:
        async with limiter_on(url, quota) as other:
            return (await other.peek("key")).remaining

    return asyncio.run(remaining())


# Event loops


@pytest.mark.parametrize("quota", QUOTAS, ids=["bucket", "fixed", "rolling"])
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_later_event_loop_charges_what_an_outage_took(server: RedisServer, quota: Quota, is_closed: bool) -> None:
    """With ``asyncio.run`` for each call, whether the store is closed in each of them or not."""
    limiter = limiter_on(server.url, quota)

    async def take() -> bool:
        decision = await limiter.rate_limit("key")
        if is_closed:
            await limiter.aclose()
        return decision.allowed

    assert [asyncio.run(take()) for _ in range(7)] == [True] * 7
    server.start()
    assert [asyncio.run(take()) for _ in range(7)] == [True] * 3 + [False] * 4
    assert left(server.url, quota) == 0


# Threads


def test_event_loops_that_repay_at_once(server: RedisServer) -> None:
    """Each in a thread of its own: Redis is charged once."""
    limiter = limiter_on(server.url)
    for number in range(200):
        asyncio.run(limiter.rate_limit(f"key {number}", 4))

    async def work(number: int) -> None:
        await limiter.rate_limit(f"other {number}")
        await limiter.aclose()

    server.start()
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda number: asyncio.run(work(number)), range(5)))

    async def left_of_all() -> set[int]:
        remaining = {(await limiter.peek(f"key {number}")).remaining for number in range(200)}
        await limiter.aclose()
        return remaining

    assert asyncio.run(left_of_all()) == {6}


def test_event_loops_that_decide_at_once_in_an_outage(request: pytest.FixtureRequest) -> None:
    """None stumbles over what another one forgets: the larger shares of large takes."""
    outage, quota = Outage("local", 4, SystemClock(), 600.0), TokenBucket(100, 0.001, burst=10)
    takes = [[Take((Charge(quota, f"{thread} {number}", 9),)) for number in range(4_000)] for thread in range(4)]

    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda own: list(map(outage.decide, own)), takes))  # which raises what any has raised


# Closing


@pytest.mark.anyio
class TestClosing:
    """A store that others use is closed."""

    async def test_takes_that_wait_are_seen_through(self, proxy: Proxy) -> None:
        """However many batches they are; those that come meanwhile and later open the store anew."""
        limiter = limiter_on(proxy.url, TokenBucket(500, 86_400))
        await limiter.rate_limit("key")
        proxy.delay = 0.02
        waiting = [asyncio.create_task(limiter.rate_limit("key")) for _ in range(400)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(limiter.aclose())
        await asyncio.sleep(0)
        meanwhile = [asyncio.create_task(limiter.rate_limit("key")) for _ in range(10)]
        await closing
        later = [asyncio.create_task(limiter.rate_limit("key")) for _ in range(10)]
        decisions = await asyncio.gather(*waiting, *meanwhile, *later)
        assert {(decision.allowed, decision.degraded) for decision in decisions} == {(True, False)}
        assert (await limiter.peek("key")).remaining == 500 - 421
        await limiter.aclose()

    async def test_the_ledger_is_repaid_before_the_connection_closes(self, proxy: Proxy) -> None:
        """As far as Redis answers: the process may end now."""
        limiter = limiter_on(proxy.url)
        await limiter.rate_limit("other")
        proxy.mangle = lambda answer: b":5\r\n" if answer.startswith(b"$") else answer
        assert (await limiter.rate_limit("other")).degraded  # its answer is lost, so it may count twice
        for number in range(200):
            assert (await limiter.rate_limit(f"key {number}")).degraded
        proxy.mangle = bytes
        await asyncio.sleep(0.15)  # until the next probe is due
        await limiter.aclose()
        async with limiter_on(proxy.url) as other:
            left = {(await other.peek(f"key {number}")).remaining for number in range(200)}
            assert left <= {9, 8}  # a trial was carried out, and its answer lost


# Processes

FORKING = """
import asyncio, os, sys
from asgi_ratelimit import Limiter, RedisStore, TokenBucket

limiter = Limiter(TokenBucket(100, 86_400), store=RedisStore(sys.argv[1], timeout=30))

def takes(count):
    assert all(asyncio.run(limiter.rate_limit("key")).degraded for _ in range(count))

takes(5)
child = os.fork()
takes(2 if child else 3)
os.write(1, b"ready\\n")
os.read(0, 1)
assert not asyncio.run(limiter.rate_limit("other", 0.001)).degraded
asyncio.run(limiter.aclose())
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_keeps_one_ledger(server: RedisServer) -> None:
    """That of the parent: the child charges only what it takes itself."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", FORKING, server.url], **pipes) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        server.start()
        parent.stdin.write(b"12")
        parent.stdin.flush()
        assert parent.wait(60) == 0
    assert left(server.url, TokenBucket(100, 86_400)) == 90
