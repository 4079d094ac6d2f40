"""The link to one Redis: the script, sent by its hash; one connection; and errors in our own words."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import ConnectionPool
from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores.redis.connection.script_calls import SCRIPT, SCRIPT_SHA, Link, NotWritable, as_ours
from asgi_ratelimit.stores.redis.script import decode, encode
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.trial import connections_of, settled

pytestmark = pytest.mark.anyio

TAKE = Take((Charge(TokenBucket(10, 3600), "key"),))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test's own, whose connections and calls are counted."""
    with RedisServer() as own:
        yield own


@pytest.fixture
async def link(server: RedisServer) -> AsyncIterator[Link]:
    """A link to it, which has not connected yet."""
    made = Link(ConnectionPool.from_url(server.url, protocol=2), 5)
    yield made
    await made.aclose()


def a_call(key: bytes = b"rl:key", take: Take = TAKE) -> Any:
    _, *packed = encode(b"rl", [take])
    return (1, key, *packed, b"", 1)


async def evaluate(link: Link, *calls: Any) -> list[Any]:
    return await link.evaluate(calls, asyncio.get_running_loop().time())


def remaining(answer: Any) -> int:
    """What one take has left, by the script's reply."""
    (decision,), _ = decode([TAKE], answer)  # type: ignore[misc]  # a take has a decision
    return decision.remaining


def calls_of(server: RedisServer, command: str) -> int:
    """How often a command was called."""
    for line in asked(server, "INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


def test_the_hash_is_that_of_the_script() -> None:
    """As Redis computes it."""
    assert hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest() == SCRIPT_SHA


async def test_the_script_travels_once(link: Link, server: RedisServer) -> None:
    """From then on it goes by its hash."""
    assert [remaining((await evaluate(link, a_call()))[0]) for _ in range(5)] == [9, 8, 7, 6, 5]
    assert (calls_of(server, "eval"), calls_of(server, "script")) == (1, 0)
    assert calls_of(server, "evalsha") == 5


async def test_a_script_that_is_gone_is_sent_once_for_all_calls(link: Link, server: RedisServer) -> None:
    """Those that found it gone are made again, in their order, and each is carried out once."""
    for _ in range(2):
        asked(server, "FLUSHALL")
        asked(server, "SCRIPT", "FLUSH")
        answers = await evaluate(link, *[a_call(b"rl:%d" % (number // 2)) for number in range(6)])
        assert list(map(remaining, answers)) == [9, 8] * 3
    assert calls_of(server, "eval") == 2


async def test_a_call_that_fails_hurts_no_other(link: Link, server: RedisServer) -> None:
    """Its error stands in the place of its answer."""
    await evaluate(link, a_call())
    first, wrong, last = await evaluate(link, a_call(), (1, b"rl:key", b"", b"nonsense", b"", 1), a_call())
    assert (remaining(first), remaining(last)) == (8, 7)
    assert isinstance(wrong, ResponseError)


async def test_it_has_one_connection(link: Link, server: RedisServer) -> None:
    """None before the first call, one for all of them, and none after it is closed; the next call opens another."""
    assert connections_of(server) == 0
    for _ in range(2):
        await evaluate(link, a_call())
        await evaluate(link, a_call())
        assert connections_of(server) == 1
        await link.aclose()
        await settled(lambda: connections_of(server) == 0)


async def test_a_connection_that_is_dropped_is_not_used_again(link: Link, server: RedisServer) -> None:
    """Not even by a call that is made at once."""
    await evaluate(link, a_call())
    (before,) = ids_of_clients(server)
    link.drop()
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.call(a_call(), asyncio.get_running_loop().time(), told.set_result)
    assert remaining(await told) == 8
    await settled(lambda: connections_of(server) == 1)
    assert ids_of_clients(server) != [before]


def ids_of_clients(server: RedisServer) -> list[bytes]:
    """The clients of a server, but for the one that asks."""
    return sorted(line.split()[0] for line in asked(server, "CLIENT", "LIST").splitlines() if b"cmd=client" not in line)


@pytest.mark.parametrize(
    ("error", "ours", "said"),
    [
        (TimeoutError("late"), StoreTimeout, r"within 0\.25 s"),
        (RedisTimeoutError("too late"), StoreTimeout, r"within 0\.25 s"),
        (RedisConnectionError("refused"), StoreUnavailable, "cannot be reached: refused"),
        (OSError("no route"), StoreUnavailable, "cannot be reached: no route"),
        (BusyLoadingError("loading"), StoreUnavailable, "loading"),
        (AuthenticationError("wrong"), StoreError, "does not let us in: wrong"),
        (ResponseError("LOADING dataset"), StoreUnavailable, "LOADING"),
        (ResponseError("BUSY a script"), StoreUnavailable, "BUSY"),
        (ResponseError("MASTERDOWN link"), StoreUnavailable, "MASTERDOWN"),
        (ResponseError("CLUSTERDOWN slot"), StoreUnavailable, "CLUSTERDOWN"),
        (ResponseError("READONLY replica"), NotWritable, "READONLY"),
        (ResponseError("MISCONF snapshots"), NotWritable, "MISCONF"),
        (ResponseError("NOREPLICAS few"), NotWritable, "NOREPLICAS"),
        (ResponseError("OOM memory"), NotWritable, "OOM"),
        (ResponseError("Error running script: @user_script:5: -OOM memory"), NotWritable, "OOM"),
        (ResponseError("NOPERM no permissions"), StoreError, "answered with an error: NOPERM"),
        (ResponseError("ERR it says LOADING somewhere"), StoreError, "answered with an error"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_errors_are_told_in_our_own_words(error: Exception, ours: type[StoreError], said: str) -> None:
    """What is out of service, what is too late, and what is wrong are told apart."""
    told = as_ours(error, 0.25)
    assert type(told) is ours
    with pytest.raises(StoreError, match=said):
        raise told
