"""A connection: answers in the order of the commands, and errors where they do not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgi_ratelimit.stores.redis.connection import connection as module
from asgi_ratelimit.stores.redis.connection.connection import (
    Connection,
    OpenConnection,
    RedisPyConnection,
    open_connection,
)
from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, MovedError, NoScriptError, ResponseError

from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
async def pool(request: pytest.FixtureRequest, redis_server: RedisServer) -> AsyncIterator[ConnectionPool]:
    """Connections of redis-py to the common Redis."""
    made = ConnectionPool(host=HOST, port=redis_server.port, protocol=request.param)
    yield made
    await made.aclose()


@pytest.fixture(params=[Connection, RedisPyConnection])
async def either(
    request: pytest.FixtureRequest, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenConnection]:
    """An open connection of each class; the second one is used where redis-py does not offer the transport."""
    if request.param is RedisPyConnection:
        monkeypatch.setattr(module, "WRITER_ATTRIBUTE", "_no_such_attribute")
    connection, opened = await open_connection(pool)
    assert type(opened) is request.param
    yield opened
    await connection.disconnect(nowait=True)
    await pool.release(connection)


@pytest.fixture
async def connection(pool: ConnectionPool) -> AsyncIterator[Connection]:
    """An open connection over the transport of redis-py."""
    owned, opened = await open_connection(pool)
    assert isinstance(opened, Connection)
    yield opened
    await owned.disconnect(nowait=True)
    await pool.release(owned)


async def outcome_of(connection: OpenConnection, *commands: tuple[Any, ...], count: int | None = None) -> Any:
    """The answers to commands, or the error in their place."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    packed = b"".join([pack_command(command) for command in commands])
    connection.send(packed, len(commands) if count is None else count, outcome.set_result)
    async with asyncio.timeout(60):
        return await outcome


async def test_redis_py_offers_the_transport(pool: ConnectionPool) -> None:
    """A canary: if this fails, redis-py has changed, and each call costs a task until ``connection.py`` follows."""
    connection = await pool.get_connection()
    writer = getattr(connection, module.WRITER_ATTRIBUTE)
    assert isinstance(writer, asyncio.StreamWriter)
    assert isinstance(writer.transport, asyncio.Transport)
    await pool.release(connection)


async def test_answers_come_in_the_order_of_the_commands(either: OpenConnection) -> None:
    """Answers of every type, however large, and call after call."""
    large = b"x" * 300_000
    for _ in range(3):
        answers = await outcome_of(either, ("ECHO", "one"), ("ECHO", large), ("EVAL", "return {1, 'two', false}", 0))
        assert answers == [b"one", large, [1, b"two", None]]
        assert either.is_clean


async def test_an_error_of_redis_is_an_answer(either: OpenConnection) -> None:
    """Redirections and missing scripts have classes of their own, and the answers behind an error still come."""
    script = "return redis.error_reply(ARGV[1])"
    errors = ["NOSCRIPT gone", "MOVED 7 host:1", "WRONGTYPE no"]
    answers = await outcome_of(either, *[("EVAL", script, 0, error) for error in errors], ("ECHO", "still here"))
    assert [type(answer) for answer in answers[:3]] == [NoScriptError, MovedError, ResponseError]
    assert (answers[1].slot_id, answers[1].host, answers[1].port) == (7, "host", 1)
    assert str(answers[2]) == errors[2]
    assert answers[3] == b"still here"


async def test_an_error_keeps_its_text(connection: Connection) -> None:
    """The code included, by which a Redis that cannot write is recognised."""
    (answer,) = await outcome_of(connection, ("EVAL", "return redis.error_reply(ARGV[1])", 0, "OOM full"))
    assert (type(answer), str(answer)) == (ResponseError, "OOM full")


async def test_a_connection_that_the_server_closes(either: OpenConnection) -> None:
    """The call in flight fails at once, and the connection is not clean."""
    outcome = await outcome_of(either, ("QUIT",), count=2)
    assert isinstance(outcome, RedisConnectionError)
    assert not either.is_clean


async def test_an_abort_ends_the_call(either: OpenConnection) -> None:
    """With its error, once; whatever still arrives is ignored."""
    outcomes: list[Any] = []
    either.send(pack_command(("BLPOP", "nothing pushed", 0)), 1, outcomes.append)
    assert not either.is_clean
    late = TimeoutError()
    either.abort(late)
    either.abort(TimeoutError())
    assert outcomes == [late]
    assert not either.is_clean


async def test_more_answers_than_commands(connection: Connection) -> None:
    """The first ones are those of the commands; then the connection is not clean."""
    assert await outcome_of(connection, ("ECHO", "one"), ("ECHO", "two"), count=1) == [b"one"]
    assert not connection.is_clean


async def test_an_answer_to_no_command(connection: Connection) -> None:
    """The connection is not clean from then on."""
    connection.data_received(b"+OK\r\n")
    assert not connection.is_clean


async def test_bytes_that_are_no_answer(connection: Connection) -> None:
    """Another service is at the other end."""
    outcomes: list[Any] = []
    connection.send(b"", 1, outcomes.append)
    connection.data_received(b"HTTP/1.1 400 Bad Request\r\n")
    assert isinstance(outcomes[0], InvalidResponse)
    assert not connection.is_clean


async def test_a_push_is_no_answer(connection: Connection) -> None:
    """A server may send messages of its own accord in RESP3."""
    outcomes: list[Any] = []
    connection.send(b"", 1, outcomes.append)
    connection.data_received(b">2\r\n$10\r\ninvalidate\r\n*0\r\n")
    assert outcomes == []
    connection.data_received(b"+OK\r\n")
    assert outcomes == [[b"OK"]]
    assert connection.is_clean
