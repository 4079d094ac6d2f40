"""Replies that no limiter expects: headers of a thousand million items, and replies without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from asgi_ratelimit.stores.redis.connection import connection as module
from asgi_ratelimit.stores.redis.connection.connection import Outcome, open_connection
from redis.asyncio import ConnectionPool
from redis.exceptions import InvalidResponse

from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.stores import RedisStore
from tests.support.proxy import listening
from tests.support.server import HOST

pytestmark = pytest.mark.anyio

HUGE = [
    b"*1000000000\r\n",
    b"*2\r\n$2\r\nok\r\n*1000000000\r\n",
    b"%1000000000\r\n",
    b"~1000000000\r\n",
    b">1000000000\r\n",
    b"|1000000000\r\n",
]


@asynccontextmanager
async def server_that_says(answer: Callable[[bytes], list[bytes]]) -> AsyncIterator[int]:
    """The port of a server that answers what it reads with these pieces, each sent by itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                for piece in answer(data):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()

    async with listening(serve) as port:
        yield port


def after_the_handshake(*pieces: bytes) -> Callable[[bytes], list[bytes]]:
    """Answers that begin when redis-py has connected."""
    return lambda data: list(pieces) if b"ECHO" in data else [b"+OK\r\n"] * data.count(b"CLIENT\r\n")


async def outcome_on(port: int) -> Outcome:
    """What a command comes to."""
    pool = ConnectionPool(host=HOST, port=port, protocol=2)
    owned, opened = await open_connection(pool)
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    opened.send(b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n", 1, outcome.set_result)
    async with asyncio.timeout(60):
        answer = await outcome
    assert not opened.is_clean
    await owned.disconnect(nowait=True)
    await pool.release(owned)
    return answer


@pytest.mark.parametrize("huge", HUGE, ids=repr)
@pytest.mark.parametrize("cut", [None, 1, 5, 8])
async def test_a_header_that_is_too_large_is_not_believed(huge: bytes, cut: int | None) -> None:
    """In whatever pieces it comes, the call fails at once, and the connection is not used again."""
    pieces = [huge] if cut is None else [huge[:-cut], huge[-cut:]]
    async with server_that_says(after_the_handshake(*pieces)) as port:
        outcome = await outcome_on(port)
    assert isinstance(outcome, InvalidResponse)
    assert "too large" in str(outcome)


async def test_a_reply_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many bytes, the call fails."""
    monkeypatch.setattr(module, "MAX_BYTES", 1_000_000)
    async with server_that_says(after_the_handshake(b"$900000000\r\n", *[b"x" * 300_000] * 9)) as port:
        outcome = await outcome_on(port)
    assert isinstance(outcome, InvalidResponse)


async def test_digits_in_a_value_are_no_header(redis_url: str) -> None:
    """Nor is a large array of a real Redis refused that is below the bound."""
    pool = ConnectionPool.from_url(redis_url, protocol=2)
    owned, opened = await open_connection(pool)
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    value = b"7*12345678 %12345678\r\n 1234567890123456"
    opened.send(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(value), value), 1, outcome.set_result)
    assert await outcome == [value]
    await owned.disconnect(nowait=True)
    await pool.release(owned)


@pytest.mark.parametrize("scheme", ["redis://", "redis+cluster://", "redis+sentinel://"])
async def test_a_server_that_answers_everything_so(scheme: str) -> None:
    """While connecting, too, and whatever the kind of address: the store is out, and nothing blocks."""
    async with server_that_says(lambda data: [b"*1000000000\r\n"]) as port:
        path = "/limits" if "sentinel" in scheme else ""
        store = RedisStore(f"{scheme}{HOST}:{port}{path}", timeout=5, on_error="deny")
        async with Limiter("10/s", store=store) as limiter:
            assert (await limiter.rate_limit("key")).degraded
            with pytest.raises(StoreError):
                await limiter.peek("key")
