"""``PacedMiddleware``: a session of aiohttp whose requests wait for their slots."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from requests.adapters import HTTPAdapter

from asgi_ratelimit import ConfigurationError, MemoryStore, PaceTimeout
from asgi_ratelimit.clients import PacedAdapter, PacedMiddleware
from asgi_ratelimit.testing import SteppedClock
from tests.clients.service import BODY, LINES, Settled

pytestmark = pytest.mark.anyio

NOT_LONG = 0.5


def paced(quota: Any = "100/s", **options: Any) -> aiohttp.ClientSession:
    """A session whose requests are paced."""
    return aiohttp.ClientSession(middlewares=[PacedMiddleware(quota, **options)])


async def get(session: aiohttp.ClientSession, url: str, **options: Any) -> bytes:
    """The body of a request."""
    async with session.get(url, **options) as answer:
        return await answer.read()


async def test_key_and_cost_are_functions_of_the_request_of_aiohttp(service: str) -> None:
    """A request without a key goes at once."""
    options: dict[str, Any] = {"key": lambda request: request.headers.get("x-user"), "cost": lambda request: 10}
    async with paced("10/minute burst 10", max_delay=0.0, **options) as session:
        for user in ({"x-user": "a"}, {"x-user": "b"}, {}, {}):
            await get(session, f"{service}/whole", headers=user)
        with pytest.raises(PaceTimeout, match="'a'"):
            await get(session, f"{service}/whole", headers={"x-user": "a"})


def test_an_option_that_there_is_not_is_refused_in_the_name_of_its_client() -> None:
    """And not in that of the transport behind it, whose example would be of httpx."""
    with pytest.raises(ConfigurationError, match=r"PacedMiddleware has the options .*retries.*, and not 'retrys'"):
        paced(retrys=2)
    with pytest.raises(ConfigurationError, match=r"PacedAdapter has the options .*max_delay.*, and not 'max_dealy'"):
        PacedAdapter(HTTPAdapter(), "2/s", max_dealy=3)  # type: ignore[call-arg]


async def parts() -> AsyncIterator[bytes]:
    """A body that can be read once."""
    yield b"x"


@pytest.mark.parametrize(
    ("body", "status", "content"),
    [
        ({"data": b"bytes"}, 200, b"bytes"),
        ({"data": "text"}, 200, b"text"),
        ({"json": [1]}, 200, b"[1]"),
        ({}, 200, b""),
        ({"data": parts()}, 429, b'{"error":"slow down"}'),
    ],
    ids=["bytes", "text", "json", "none", "parts"],
)
async def test_a_refused_request_is_sent_again(service: str, body: Any, status: int, content: bytes) -> None:
    """If its whole body is at hand."""
    async with paced(retries=1) as session, session.post(f"{service}/refused?{uuid4()}", **body) as answer:
        assert (answer.status, await answer.read()) == (status, content)


async def all_of(chunks: AsyncIterator[Any]) -> bytes:
    """What an iterator yields."""
    return b"".join([chunk[0] if isinstance(chunk, tuple) else chunk async for chunk in chunks])


READERS: dict[str, Callable[[aiohttp.ClientResponse], Any]] = {
    "read": lambda answer: answer.read(),
    "content": lambda answer: all_of(aiter(answer.content)),
    "iter_any": lambda answer: all_of(answer.content.iter_any()),
    "iter_chunks": lambda answer: all_of(answer.content.iter_chunks()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("path", ["whole", "streamed", "compressed"])
async def test_a_request_is_under_way_until_its_body_was_read(service: str, path: str, read: Any) -> None:
    """By whatever method; then it is settled, decoded, and the next one may go."""
    settle = Settled()
    async with paced(concurrency=1, max_delay=0.0, quota="100/s burst 100", settle=settle) as session:
        answer = await session.get(f"{service}/{path}")
        with pytest.raises(PaceTimeout):
            await session.get(f"{service}/whole")
        assert settle.answers == []
        assert await read(answer) == BODY
        assert settle.answers == [(200, "text/plain; charset=utf-8", BODY)]
        assert await get(session, f"{service}/whole") == BODY


async def test_a_body_that_is_not_read_yet_can_be_that_of_another_request(service: str) -> None:
    """Sent on as it comes, and not line by line, as aiohttp sends other iterators: a picture has no lines."""
    picture = b"x" * 1_000_000
    async with paced(concurrency=2) as session, session.post(f"{service}/echo", data=picture) as answer:
        assert isinstance(answer.content, aiohttp.StreamReader)
        async with session.post(f"{service}/echo", data=answer.content) as other:
            assert await other.read() == picture


@pytest.mark.parametrize("end", ["close", "release", "leave"])
async def test_a_request_that_is_cut_is_settled(service: str, end: str) -> None:
    """By what was read until then; one without a body at once."""
    settle = Settled()
    async with paced("10/day burst 10", cost=6, settle=settle, max_delay=0.0) as session:
        async with session.get(f"{service}/whole") as answer:
            await answer.content.read(5)
            if end != "leave":
                getattr(answer, end)()
        await session.get(f"{service}/empty")
    assert settle.answers == [(200, "text/plain; charset=utf-8", BODY[:5]), (204, None, b"")]


@pytest.mark.parametrize("end", ["close", "release", "leave"])
async def test_a_request_is_under_way_until_it_is_closed(service: str, end: str) -> None:
    """Also where its body was read in part, or not at all; an answer without a body is closed at once."""
    async with paced(concurrency=1, max_delay=NOT_LONG, quota="100/s burst 100") as session:
        for lines in (0, 1):
            async with session.get(f"{service}/streamed") as answer:
                assert [await answer.content.readline() for _ in range(lines)] == LINES[:lines]
                if end != "leave":
                    getattr(answer, end)()
        await session.get(f"{service}/empty")
        assert await get(session, f"{service}/whole") == BODY


async def test_a_request_that_is_dropped_is_not_under_way(service: str) -> None:
    """The garbage collector closes it, where its body is to be settled."""
    options: dict[str, Any] = {"concurrency": 1, "max_delay": NOT_LONG, "settle": Settled()}
    async with paced(quota="100/s burst 100", **options) as session:
        answer = await session.get(f"{service}/whole")
        await answer.content.wait_eof()  # until then, its connection refers to it
        del answer
        gc.collect()  # a request of aiohttp and its answer refer to each other
        assert await get(session, f"{service}/whole") == BODY


async def test_the_total_timeout_of_aiohttp_counts_the_wait(service: str) -> None:
    """A request that gives up while it waits gives its slot back."""
    clock = SteppedClock(0)
    middleware = PacedMiddleware("1/minute", store=MemoryStore(clock=clock))
    async with aiohttp.ClientSession(middlewares=[middleware]) as session:
        await get(session, f"{service}/whole")
        with pytest.raises(asyncio.TimeoutError):
            await get(session, f"{service}/whole", timeout=aiohttp.ClientTimeout(total=0.05))
        clock.advance(60)
        assert await get(session, f"{service}/whole") == BODY


async def test_several_sessions_share_one(service: str, redis_url: str) -> None:
    """Closing it closes the store that it opened."""
    async with PacedMiddleware("1/minute", max_delay=0.0, store=redis_url) as middleware:
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            await get(session, f"{service}/whole")
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            with pytest.raises(PaceTimeout):
                await get(session, f"{service}/whole")
