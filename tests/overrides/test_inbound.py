"""The middleware, its rules, and dependencies under overrides of their names."""

import json
import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from asgi_ratelimit import MemoryStore, Overrides, RateLimit, RateLimitMiddleware, RedisStore, Rule, Store
from asgi_ratelimit.hooks import Event
from tests.support.asgi import ask, http, ok
from tests.support.overriding import until, until_async

pytestmark = pytest.mark.anyio

Shared: TypeAlias = tuple[Store, Overrides]

PATHS = ("/", "/login", "/export", "/health")


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


def shop(store: Store, *, quota: Any = "100/hour", **options: Any) -> Starlette:
    """An app with a middleware of its own quota, a rule, one that decides alone, and an exemption."""

    async def show(request: Any) -> PlainTextResponse:
        return PlainTextResponse("fine")

    app = Starlette(routes=[Route(path, show) for path in PATHS])
    rules = (
        Rule("/login", "3/hour", name="login"),
        Rule("/export", "2/hour", name="export", only=True),
        Rule("/health", None, name="health"),
    )
    app.add_middleware(RateLimitMiddleware, quota=quota, rules=rules, store=store, name="all", **options)
    return app


async def test_a_rule_changes_and_comes_back(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    """For the next request; what was used stays used."""
    store, overrides = shared
    async with client_of(shop(store)) as client:
        assert [(await client.get("/login")).status_code for _ in range(4)] == [200] * 3 + [429]
        await overrides.set("login", "5/hour", seconds=600, by="alice")
        await until_async(lambda: answers(client, "/login", 200))
        assert [(await client.get("/login")).status_code for _ in range(2)] == [200, 429]
        await overrides.unset("login")
        await until_async(lambda: says(client, "/login", "q=3"))
        assert (await client.get("/login")).status_code == 429
        lines = ["login: 3/hour -> 5/hour, by alice", "login: 5/hour -> 3/hour"]
        await until(lambda: [line for line in caplog.messages if "->" in line] == lines)  # it is applied, then logged


async def test_the_first_request_is_under_the_overrides(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are watched from the start of an app."""
    async with Overrides(redis_url) as overrides:
        await overrides.set("login", "1/hour")
    with TestClient(shop(RedisStore(redis_url))) as client:
        await until(lambda: "login: 3/hour -> 1/hour" in caplog.text)
        assert [client.get("/login").status_code for _ in range(2)] == [200, 429]


async def answers(client: httpx.AsyncClient, path: str, status: int) -> bool:
    """Whether a request gets this status."""
    return (await client.get(path)).status_code == status


async def says(client: httpx.AsyncClient, path: str, text: str, times: int = 1) -> bool:
    """Whether the policy of an answer contains a text so often."""
    return (await client.get(path)).headers.get("ratelimit-policy", "").count(text) == times


async def test_off_and_shadow_of_each_kind_of_rule() -> None:
    """``off`` takes a limit away and leaves the others; a rule that decides alone still does."""
    store = MemoryStore()
    overrides = Overrides(store)
    seen: list[Event] = []
    async with client_of(shop(store, hooks=[seen.append])) as client:
        for word in ("off", "shadow"):
            for name, path in (("login", "/login"), ("export", "/export")):
                await overrides.set(name, word)
                seen.clear()
                statuses = [(await client.get(path)).status_code for _ in range(5)]
                assert statuses == [200] * 5
                shadows = [event.decision for event in seen if event.decision.shadow]
                enforced = [event.decision for event in seen if not event.decision.shadow]
                assert len(shadows) == 5 * (word == "shadow")
                assert len(enforced) == 5 * (name == "login")
                assert word == "off" or not shadows[-1].allowed
        await overrides.set("health", "1/hour")
        assert [(await client.get("/health")).status_code for _ in range(2)] == [200, 429]


async def test_an_override_of_a_limit_with_a_time_to_retry() -> None:
    """What is off has none, and a rate knows its own."""
    store = MemoryStore()
    rule = Rule("/", "1 at once", retry_after=9, name="export")
    for word, policy in (("off", None), ("3/hour", '"at-once";q=3;w=3600')):
        await Overrides(store).set("export", word)
        app = RateLimitMiddleware(ok, rules=[rule], store=store)
        assert (await ask(app, http())).headers.get("ratelimit-policy") == policy


async def test_a_dependency_changes_and_comes_back(shared: Shared) -> None:
    """By its name, or by that of its route; words let everybody pass."""
    store, overrides = shared
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=store)
    values: list[Any] = []
    named, unnamed = RateLimit("1/hour", name="search"), RateLimit("1/hour")

    @app.get("/search", dependencies=[Depends(unnamed)])
    async def search(decision: Annotated[Any, Depends(named)]) -> None:
        values.append(decision)

    async with client_of(app) as client:
        assert [(await client.get("/search")).status_code for _ in range(2)] == [200, 429]
        for name in ("search", "GET /search"):
            await overrides.set(name, "off")
        await until_async(lambda: answers(client, "/search", 200))
        assert values[-1] is None
        for name in ("search", "GET /search"):
            await overrides.set(name, "5/hour")
        await until_async(lambda: says(client, "/search", "q=5", 2))
        await overrides.set("search", "shadow")
        await until_async(lambda: says(client, "/search", "q=5"))
        for name in ("search", "GET /search"):
            await overrides.unset(name)
        await until_async(lambda: answers(client, "/search", 429))


@pytest.mark.parametrize("written", [{"login": "nonsense"}, {"login": 5}])
async def test_what_cannot_be_read_changes_nothing(
    written: Mapping[str, Any], caplog: pytest.LogCaptureFixture, redis_url: str
) -> None:
    """One line says so, and the limits stay as they were."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    items = {name: {"quota": quota, "until": None, "by": None, "at": 0} for name, quota in written.items()}
    async with client_of(shop(store)) as client:
        await client.get("/login")
        content = json.dumps({"format": 1, "version": 1, "overrides": items, "history": []}).encode()
        with caplog.at_level(logging.ERROR):
            await store.documents.write("overrides", content)
            await until(lambda: caplog.messages)
        assert await says(client, "/login", "q=3")
    await store.aclose()
    (message,) = caplog.messages
    assert "the overrides cannot be read, and stay as they are" in message


async def test_the_own_quota_of_a_middleware() -> None:
    """It goes by the middleware's name; a function is replaced while the override lasts."""
    store = MemoryStore()
    overrides = Overrides(store)
    for quota in ("100/hour", lambda request: "100/hour"):
        async with client_of(shop(store, quota=quota)) as client:
            await client.get("/")
            await overrides.set("all", "200/hour")
            assert await says(client, "/", "q=200")
            await overrides.set("all", "off")
            assert await says(client, "/", "q=", 0)
            assert await says(client, "/login", "q=3")
            await overrides.unset("all")
            assert await says(client, "/", "q=100")
