"""Owners: a limit owns its name on its store for as long as it is alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from asgi_ratelimit import Limiter, MemoryStore, RateLimit, RateLimitMiddleware, Rule, SyncLimiter, TokenBucket
from tests.support.asgi import ok


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to is gone."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "build",
    [
        lambda store, quota: RateLimitMiddleware(ok, quota, store=store, name="api"),
        lambda store, quota: RateLimitMiddleware(ok, rules=[Rule("/", quota, name="api")], store=store, name="first"),
        lambda store, quota: RateLimit(quota, store=store, name="api"),
        lambda store, quota: Limiter(quota, store=store, name="api"),
        lambda store, quota: SyncLimiter(quota, store=store, name="api"),
        lambda store, quota: Starlette(middleware=[Middleware(RateLimitMiddleware, quota, store=store, name="api")]),
    ],
    ids=["middleware", "rule", "dependency", "limiter", "sync limiter", "app"],
)
def test_an_owner_that_is_dropped_owns_nothing(build: Any) -> None:
    """At once: no owner waits for the garbage collector."""
    store = MemoryStore()
    for limit in range(1, 20):
        owner = build(store, TokenBucket(limit, 60))
        if isinstance(owner, Starlette):
            owner.middleware_stack = owner.build_middleware_stack()
        del owner
