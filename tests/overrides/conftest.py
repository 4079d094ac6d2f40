"""Stores with overrides, for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from asgi_ratelimit import MemoryStore, Overrides, RedisStore, Store


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is read ten times as often, so that nobody waits for a change; other processes read it as it is."""
    monkeypatch.setattr("asgi_ratelimit.overrides.EVERY", 0.09)


@pytest.fixture(params=["memory", "redis"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Overrides]]:
    """Each kind of store in turn, and overrides of it: on Redis, they are those of another process."""
    if request.param == "memory":
        memory = MemoryStore()
        yield memory, Overrides(memory)
        return
    url = request.getfixturevalue("redis_url")
    store = RedisStore(url, timeout=30, on_error="deny")
    async with Overrides(url) as overrides:
        yield store, overrides
    await store.aclose()
