"""Stores with overrides, for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from asgi_ratelimit import Overrides, Store
from tests.support.overriding import shared_store


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is read ten times as often, so that nobody waits for a change; other processes read it as it is."""
    monkeypatch.setattr("asgi_ratelimit.overrides.EVERY", 0.09)


@pytest.fixture(params=["memory", "redis"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Overrides]]:
    """Each kind of store in turn, and overrides of it that another process may have made."""
    url = None if request.param == "memory" else request.getfixturevalue("redis_url")
    async with shared_store(url) as both:
        yield both
