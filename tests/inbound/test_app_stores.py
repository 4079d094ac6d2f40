"""Dependencies without a middleware: where their store comes from, and how tests reset it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI

from asgi_ratelimit import ConfigurationError, MemoryStore, RateLimit, RateLimitMiddleware
from asgi_ratelimit.testing import SteppedClock, stepped_dependencies
from tests.support.asgi import ask
from tests.support.store_elsewhere import StoreElsewhere

pytestmark = pytest.mark.anyio


def an_app(quota: str = "1/hour", **options: Any) -> FastAPI:
    app = FastAPI()
    app.get("/", dependencies=[Depends(RateLimit(quota, name="api", **options))])(lambda: "hello")
    return app


async def statuses(*apps: Any) -> list[int]:
    return [(await ask(app)).status for app in apps]


async def test_one_call_sets_the_store_of_all_apps() -> None:
    """They then share the buckets of one name."""
    one, other = an_app(), an_app()
    assert await statuses(one, other) == [200, 200]
    RateLimit.set_store(MemoryStore())
    assert await statuses(one, other, one) == [200, 429, 429]
    RateLimit.set_store("memory://")
    assert await statuses(one, other) == [200, 429]


async def test_the_state_of_an_app_is_its_store() -> None:
    """Before the default; it is observed where it changes."""
    RateLimit.set_store(MemoryStore())
    store, one, other, third = MemoryStore(), an_app(), an_app(), an_app()
    one.state.rate_limit_store = other.state.rate_limit_store = store
    assert await statuses(one, other, third) == [200, 429, 200]
    one.state.rate_limit_store = "memory://"
    assert await statuses(one, one, other) == [200, 429, 429]


async def test_a_middleware_and_an_own_store_come_first() -> None:
    """The default is for limits that have neither."""
    RateLimit.set_store(MemoryStore())
    own, within = an_app(store=MemoryStore()), an_app()
    within.add_middleware(RateLimitMiddleware, store=MemoryStore())
    assert await statuses(an_app(), own, within) == [200, 200, 200]


async def test_wrong_stores_are_refused() -> None:
    """At the call, and at the first request for the state of an app."""
    with pytest.raises(ConfigurationError, match="which has no take"):
        RateLimit.set_store(object())  # type: ignore[arg-type]
    app = an_app()
    app.state.rate_limit_store = object()
    with pytest.raises(ConfigurationError, match="which has no take"):
        await ask(app)


async def test_dependencies_can_be_reset_and_stepped() -> None:
    """In tests: unused at the start, with a clock that is moved by hand, and as before afterwards."""
    apps: list[Any] = [an_app(), an_app(store=MemoryStore())]
    apps.append(RateLimitMiddleware(an_app(store=MemoryStore())))  # around a limit with a store of its own
    for app in apps:
        assert await statuses(app, app) == [200, 429]
        for _ in range(2):
            with stepped_dependencies() as clock:
                assert await statuses(app, app) == [200, 429]
                clock.advance(3600)
                assert await statuses(app, app) == [200, 429]
        assert await statuses(app) == [429]
    clock = SteppedClock(5.0)
    with stepped_dependencies(clock) as same:
        assert same is clock


# Workers


@pytest.mark.parametrize(
    ("store", "is_told"), [(None, True), ("memory://", True), (StoreElsewhere(MemoryStore()), False)], ids=range(3)
)
async def test_dependencies_with_several_workers(
    store: Any, is_told: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are warned of as a middleware is, if they are in the memory of each worker."""
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    await statuses(an_app(store=store))
    assert ("each of 3 workers has a memory store of its own" in caplog.text) is is_told
