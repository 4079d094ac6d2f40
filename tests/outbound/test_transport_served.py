"""A paced transport in front of real connections, to a service in a real uvicorn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, TokenBucket
from tests.support.server import HOST, Uvicorn

TOKENS = TokenBucket(1, 3600, burst=1000, name="tokens")
TIMEOUT = 30.0


@pytest.fixture(scope="module")
def service() -> Iterator[Uvicorn]:
    """The service, for all tests."""
    with Uvicorn("tests.support.service_app:app") as server:
        yield server


class Settled:
    """A ``settle`` function that reads bodies, and records them."""

    reads_body = True

    def __init__(self, actual: float) -> None:
        self.actual = actual
        self.bodies: list[bytes] = []

    def __call__(self, answer: Any) -> float:
        self.bodies.append(answer.body)
        return self.actual


def left(store: MemoryStore) -> int:
    """The tokens that are left."""
    return asyncio.run(Limiter(TOKENS, store=store, name="outbound").peek(HOST)).remaining


def test_a_stream_that_is_left_early(service: Uvicorn, module: Any) -> None:
    """It is settled with what was read of it, and the next request may go."""
    settle, store = Settled(50), MemoryStore()
    options = {"cost": 100, "settle": settle, "store": store, "concurrency": 1, "max_delay": TIMEOUT}
    transport = PacedTransport(module.AsyncHTTPTransport(), TOKENS, **options)

    async def main() -> None:
        async with module.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            for _ in range(2):
                async with client.stream("GET", f"{service.url}/endless") as answer:
                    await anext(answer.aiter_raw())

    asyncio.run(main())
    assert [len(body) >= 1000 for body in settle.bodies] == [True, True]
    assert left(store) == 900
