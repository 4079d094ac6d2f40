"""A server that is limited by this package, and a client with an ``AdaptiveTransport``, get along without a refusal."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from examples.adaptive_client import app, fetch, limited_app
from tests.support.server import Uvicorn


class Network(httpx.AsyncBaseTransport):
    """Between 20 and 40 ms to the server and back, so that requests overtake one another."""

    def __init__(self, app: Any) -> None:
        self.inner = httpx.ASGITransport(app)
        self.random = random.Random(7)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self.random.uniform(0.01, 0.02))
        response = await self.inner.handle_async_request(request)
        await asyncio.sleep(self.random.uniform(0.01, 0.02))
        return response


@pytest.mark.parametrize(
    ("quota", "seconds"),
    [
        ("10/s burst 10", 11),
        ("10/s", 11),
        ("20/s burst 5", 6.5),
        ("100/minute", 12),
        ("30/minute fixed", 180),
        ("30/minute rolling", 180),
        ("60/minute fixed; 10/s burst 10", 60),
    ],
)
def test_nobody_is_refused_and_little_is_left_unused(quota: str, seconds: float) -> None:
    """120 pages at once, each of another path, from a server of which the client knows nothing."""
    clock = SteppedClock()
    server = limited_app(quota, MemoryStore(clock=clock))
    transport = AdaptiveTransport(Network(server), store=MemoryStore(clock=clock), retries=0)
    started = clock.now
    assert clock.run(fetch(transport, 120)) == {200: 120}
    assert clock.now - started <= seconds * 1.1 + 1


def test_the_example() -> None:
    """It says what it does, with the clock of this machine."""
    assert asyncio.run(fetch(AdaptiveTransport(httpx.ASGITransport(app()), retries=0), 60)) == {200: 60}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_real_server(redis_url: str, workers: int) -> None:
    """Over real connections, to one process or to two that share a Redis: 40 a second, and not one refusal."""
    env = {"ASGI_RATELIMIT_STORE": redis_url}
    served = Uvicorn("examples.adaptive_client:app", "--factory", "--workers", str(workers), env=env)
    with served as server:
        transport = AdaptiveTransport(httpx.AsyncHTTPTransport(), retries=0)
        assert asyncio.run(fetch(transport, 60, server.url)) == {200: 60}
