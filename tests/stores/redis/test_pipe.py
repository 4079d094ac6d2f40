"""A pipe: answers in the order of the questions, and what is told where they do not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hiredis import pack_command
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, MovedError, NoScriptError, ResponseError

from asgi_ratelimit.stores.redis.connection.connection import Pipe
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
async def pipe(request: pytest.FixtureRequest, redis_server: RedisServer) -> AsyncIterator[Pipe]:
    """One on a connection that redis-py has opened."""
    connection = Connection(host=HOST, port=redis_server.port, protocol=request.param)
    await connection.connect()
    yield Pipe(connection)
    await connection.disconnect(nowait=True)


async def ask(pipe: Pipe, *commands: tuple[Any, ...], due: int | None = None) -> Any:
    """What is told of an exchange."""
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    packed = b"".join([pack_command(command) for command in commands])
    pipe.exchange(packed, len(commands) if due is None else due, told.set_result)
    async with asyncio.timeout(10):
        return await told


async def test_answers_come_in_the_order_of_the_commands(pipe: Pipe) -> None:
    """Of every type, however large, and in exchange after exchange."""
    large = b"x" * 300_000
    for _ in range(3):
        answers = await ask(pipe, ("ECHO", "one"), ("ECHO", large), ("EVAL", "return {1, 'two', false}", 0))
        assert answers == [b"one", large, [1, b"two", None]]
        assert pipe.is_clean


async def test_an_error_of_redis_is_an_answer_like_any_other(pipe: Pipe) -> None:
    """Those that lead somewhere else have classes of their own; the others keep their whole text."""
    script = "return redis.error_reply(ARGV[1])"
    errors = ["NOSCRIPT gone", "MOVED 7 host:1", "WRONGTYPE no", "OOM full"]
    answers = await ask(pipe, *[("EVAL", script, 0, error) for error in errors], ("ECHO", "still here"))
    assert [type(answer) for answer in answers[:4]] == [NoScriptError, MovedError, ResponseError, ResponseError]
    assert (answers[1].slot_id, answers[1].host, answers[1].port) == (7, "host", 1)
    assert [str(answer) for answer in answers[2:4]] == errors[2:]
    assert answers[4] == b"still here"


async def test_a_connection_that_ends_is_told(pipe: Pipe) -> None:
    """Whoever waits is told at once, and it is not used again."""
    told = await ask(pipe, ("QUIT",), due=2)
    assert isinstance(told, RedisConnectionError)
    assert not pipe.is_clean


async def test_whoever_gives_up_is_told_why(pipe: Pipe) -> None:
    """And what may still come goes nowhere."""
    told: list[Any] = []
    pipe.exchange(b"", 1, told.append)
    assert not pipe.is_clean
    late = TimeoutError()
    pipe.give_up(late)
    pipe.give_up(TimeoutError())
    assert told == [late]
    assert not pipe.is_clean


async def test_more_answers_than_questions(pipe: Pipe) -> None:
    """The first ones are those that were asked for; then it is out of step, and not used again."""
    assert await ask(pipe, ("ECHO", "one"), ("ECHO", "two"), due=1) == [b"one"]
    assert not pipe.is_clean


async def test_an_answer_that_nobody_asked_for(pipe: Pipe) -> None:
    """It leaves the pipe out of step."""
    pipe.data_received(b"+OK\r\n")
    assert not pipe.is_clean


async def test_what_is_no_answer_at_all(pipe: Pipe) -> None:
    """Something else than Redis is at the other end."""
    told: list[Any] = []
    pipe.exchange(b"", 1, told.append)
    pipe.data_received(b"HTTP/1.1 400 Bad Request\r\n")
    assert isinstance(told[0], InvalidResponse)
    assert not pipe.is_clean


async def test_what_is_pushed_is_no_answer(pipe: Pipe) -> None:
    """A server may say things of its own accord in RESP3."""
    told: list[Any] = []
    pipe.exchange(b"", 1, told.append)
    pipe.data_received(b">2\r\n$10\r\ninvalidate\r\n*0\r\n")
    assert told == []
    pipe.data_received(b"+OK\r\n")
    assert told == [[b"OK"]]
    assert pipe.is_clean
