"""How many connections counting needs."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit import RateLimitMiddleware, RedisStore
from tests.support.asgi import ask, http, ok
from tests.support.overriding import until
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer


@pytest.mark.anyio
async def test_an_app_needs_two_connections() -> None:
    """One for takes, and one on which it reads overrides and publishes its counts."""
    with RedisServer() as server:
        store = RedisStore(server.url, timeout=30)
        app = RateLimitMiddleware(ok, "1000/minute", store=store)
        await asyncio.gather(*[ask(app, http()) for _ in range(100)])
        await until(lambda: asked(server, "KEYS", "rl:documents:counts*"))
        await until(lambda: len(asked(server, "CLIENT", "LIST").splitlines()) == 2 + 1)  # and who asks for the list
        await store.aclose()
