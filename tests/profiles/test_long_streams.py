"""A stream of any length is settled: what it has used stands at its beginning and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, TokenBucket
from asgi_ratelimit.profiles import anthropic_usage, openai_usage
from asgi_ratelimit.testing import SteppedClock
from tests.profiles.answers import CHAT_STREAM, MESSAGE_STREAM, stream

QUOTAS = [TokenBucket(10_000, 86_400, name=name) for name in ("tokens", "input_tokens", "output_tokens")]


@pytest.mark.parametrize(
    ("events", "settle", "left"),
    [(CHAT_STREAM, openai_usage, [9687, 9000, 9000]), (MESSAGE_STREAM, anthropic_usage, [9000, 9700, 9987])],
)
def test_a_stream_of_megabytes(events: Any, settle: Any, left: list[int]) -> None:
    """Its middle is not kept."""
    first, *middle, last, end = stream(*events).body.split(b"\n\n")[:-1]
    passed = []

    async def body() -> AsyncIterator[bytes]:
        yield first + b"\n\n"
        for _ in range(300):
            yield b"\n\n".join(middle * 200) + b"\n\n"
        yield last + b"\n\n" + end + b"\n\n"

    async def main() -> list[int]:
        store = MemoryStore(clock=SteppedClock(0))
        inner = httpx.MockTransport(lambda request: httpx.Response(200, content=body()))
        transport = PacedTransport(inner, QUOTAS, key="a", cost=1000, settle=settle, store=store, name="long")
        async with (
            httpx.AsyncClient(transport=transport) as client,
            client.stream("GET", "http://service.example/") as answer,
        ):
            passed.extend([len(part) async for part in answer.aiter_raw()])
        peeked = await Limiter(QUOTAS, store=store, name="long").peek("a")
        return [state.remaining for state in peeked.states]

    assert asyncio.run(main()) == left
    assert sum(passed) > 3_000_000
