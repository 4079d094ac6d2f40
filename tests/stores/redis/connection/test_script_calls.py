"""Calls of the script: by its hash, over one connection, each with a deadline."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgi_ratelimit.stores.redis.connection import connection
from asgi_ratelimit.stores.redis.connection.script_calls import SCRIPT, SCRIPT_SHA, ScriptCaller
from asgi_ratelimit.stores.redis.script_encoding import decode, encode
from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import StoreTimeout
from asgi_ratelimit.quotas import TokenBucket
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.trial import PATIENT, connections_of, frozen, settled

pytestmark = pytest.mark.anyio

TAKE = Take((Charge(TokenBucket(10, 3600), "key"),))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test's own, whose connections and calls are counted."""
    with RedisServer() as own:
        yield own


@pytest.fixture
async def caller(server: RedisServer) -> AsyncIterator[ScriptCaller]:
    """A caller of that server, which has not connected yet."""
    made = ScriptCaller(ConnectionPool.from_url(server.url, protocol=2), 5)
    yield made
    await made.aclose()


def a_call(key: bytes = b"rl:key", take: Take = TAKE) -> Any:
    _, *packed = encode(b"rl", [take])
    return (1, key, *packed, b"", 1, 7)


async def evaluate(caller: ScriptCaller, *calls: Any) -> list[Any]:
    return await caller.evaluate(calls, asyncio.get_running_loop().time())


def remaining(answer: Any) -> int:
    """``remaining`` of a take, by the script's reply."""
    (decision,), _, _ = decode([TAKE], answer, 7)  # type: ignore[misc]  # a take has a decision
    return decision.remaining


def calls_of(server: RedisServer, command: str) -> int:
    """How often a command was called."""
    for line in asked(server, "INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


def test_the_hash_of_the_script() -> None:
    """It is the one that Redis computes."""
    assert hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest() == SCRIPT_SHA


async def test_the_script_travels_once(caller: ScriptCaller, server: RedisServer) -> None:
    """From then on it is called by its hash."""
    assert [remaining((await evaluate(caller, a_call()))[0]) for _ in range(5)] == [9, 8, 7, 6, 5]
    assert (calls_of(server, "eval"), calls_of(server, "script")) == (1, 0)
    assert calls_of(server, "evalsha") == 1 + 5  # the first one has no key, which a proxy that shards could not route


async def test_a_missing_script_is_sent_once_for_all_calls(caller: ScriptCaller, server: RedisServer) -> None:
    """The calls that failed for it are repeated in order, and each is carried out once."""
    for _ in range(2):
        asked(server, "FLUSHALL")
        asked(server, "SCRIPT", "FLUSH")
        answers = await evaluate(caller, *[a_call(b"rl:%d" % (number // 2)) for number in range(6)])
        assert list(map(remaining, answers)) == [9, 8] * 3
    assert calls_of(server, "eval") == 2


async def test_a_failed_call_does_not_affect_the_others(caller: ScriptCaller, server: RedisServer) -> None:
    """Its error stands in the place of its reply."""
    await evaluate(caller, a_call())
    first, wrong, last = await evaluate(caller, a_call(), (1, b"rl:key", b"", b"nonsense", b"", 1), a_call())
    assert (remaining(first), remaining(last)) == (8, 7)
    assert isinstance(wrong, ResponseError)


async def test_it_has_one_connection(caller: ScriptCaller, server: RedisServer) -> None:
    """None before the first call, one for all of them, and none after it is closed; the next call opens another."""
    assert connections_of(server) == 0
    for _ in range(2):
        await evaluate(caller, a_call())
        await evaluate(caller, a_call())
        assert connections_of(server) == 1
        await caller.aclose()
        await settled(lambda: connections_of(server) == 0)


async def test_a_connection_that_is_dropped_is_not_used_again(caller: ScriptCaller, server: RedisServer) -> None:
    """Not even by a call that is made at once."""
    await evaluate(caller, a_call())
    (before,) = ids_of_clients(server)
    caller.drop()
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    caller.call(a_call(), asyncio.get_running_loop().time(), reply.set_result)
    assert remaining(await reply) == 8
    await settled(lambda: connections_of(server) == 1)
    assert ids_of_clients(server) != [before]


def ids_of_clients(server: RedisServer) -> list[bytes]:
    """The clients of a server, except for the one that lists them."""
    return sorted(line.split()[0] for line in asked(server, "CLIENT", "LIST").splitlines() if b"cmd=client" not in line)


async def test_a_call_without_the_transport_of_redis_py(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls go through redis-py's own methods, and survive a lost script and a closed connection."""
    monkeypatch.setattr(connection, "WRITER_ATTRIBUTE", "_no_such_attribute")
    caller = ScriptCaller(ConnectionPool.from_url(server.url, protocol=2), 5)
    replies = [await reply_to(caller) for _ in range(2)]
    asked(server, "SCRIPT", "FLUSH")
    replies.append(await reply_to(caller))
    asked(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    another = ScriptCaller(ConnectionPool.from_url(server.url, protocol=2), 5)
    await another.command("PING")  # meanwhile the event loop sees that the first connection is closed
    await another.aclose()
    replies.append(await reply_to(caller))
    assert list(map(remaining, replies)) == [9, 8, 7, 6]
    await caller.aclose()


@pytest.mark.parametrize("attribute", ["_writer", "_no_such_attribute"])
async def test_a_deadline(server: RedisServer, monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    """A call that is not answered in time fails, with or without the transport; a later one uses a new connection."""
    monkeypatch.setattr(connection, "WRITER_ATTRIBUTE", attribute)
    caller = ScriptCaller(ConnectionPool.from_url(server.url, protocol=2), PATIENT)
    assert remaining(await reply_to(caller)) == 9
    async with frozen(server):
        assert isinstance(await reply_to(caller), StoreTimeout)
    await settled(lambda: connections_of(server) == 0)
    assert remaining(await reply_to(caller)) == 7  # Redis carried the late call out when it was resumed
    await caller.aclose()


async def reply_to(caller: ScriptCaller) -> Any:
    """The reply to a call that is submitted now."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[Any] = loop.create_future()
    caller.call(a_call(), loop.time(), reply.set_result)
    async with asyncio.timeout(60):
        return await reply
