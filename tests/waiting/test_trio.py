"""Under trio, what needs asyncio says so, and what needs none works."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio

from asgi_ratelimit import AdaptiveTransport, Limiter, MemoryStore, PacedTransport, RateLimitMiddleware, RedisStore
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, ok


def on_redis() -> RedisStore:
    """A store that is never connected."""
    return RedisStore("redis://localhost:1")


def middleware(**options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(ok, "1/minute", **options)


async def spend() -> None:
    async with Limiter("1/s").spend("key", 1):
        pass


async def send() -> None:
    transport = PacedTransport(httpx.MockTransport(lambda request: httpx.Response(200)), "1/s")
    for _ in range(2):
        await transport.handle_async_request(httpx.Request("GET", "http://a.example"))


async def send_adaptively() -> None:
    transport = AdaptiveTransport(httpx.MockTransport(lambda request: httpx.Response(200)))
    await transport.handle_async_request(httpx.Request("GET", "http://a.example"))


CALLS: dict[str, Callable[[], Awaitable[object]]] = {
    "acquire": lambda: Limiter("1/s").acquire("key"),
    "spend": spend,
    "rate_limit on Redis": lambda: Limiter("1/s", store=on_redis()).rate_limit("key"),
    "close on Redis": lambda: on_redis().aclose(),
    "transport": send,
    "adaptive transport": send_adaptively,
    "middleware on Redis": lambda: ask(middleware(store=on_redis())),
    "middleware with max_delay": lambda: ask(middleware(max_delay=1.0)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=[name.replace(" ", "_") for name in CALLS])
@pytest.mark.filterwarnings("error")
def test_what_needs_asyncio_says_so(call: Callable[[], Awaitable[object]]) -> None:
    """With what to do instead; and no coroutine is left that was never awaited."""

    async def main() -> None:
        await call()

    with pytest.raises(ConfigurationError, match=r"needs asyncio, and no event loop of it is running; under trio, \w+"):
        trio.run(main)
    gc.collect()


def test_a_middleware_in_memory_works() -> None:
    """It neither waits nor needs a loop."""
    app = middleware(store=MemoryStore(clock=SteppedClock()))

    async def main() -> list[int]:
        return [(await ask(app)).status for _ in range(2)]

    assert trio.run(main) == [200, 429]
