"""Nobody shares a bucket by accident: where middlewares stand, and what names on one store may not mean twice."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import ConfigurationError, MemoryStore, RateLimit, RateLimitMiddleware, Rule
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok

pytestmark = pytest.mark.anyio

CONFLICT = r"two limits named 'api' share a store .* TokenBucket\(limit=\d+.*TokenBucket\(limit=\d+"


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def a_store() -> MemoryStore:
    return MemoryStore(clock=SteppedClock())


def limiting(store: Any, quota: Any = "1/minute", **options: Any) -> list[Middleware]:
    return [Middleware(RateLimitMiddleware, quota, store=store, **options)]


async def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    return [(await ask(app, http(path, **more))).status for path in paths]


# Places


async def test_routes_with_a_middleware_each_do_not_share() -> None:
    """Equal quotas on one store are two limits, and a parameter in the path does not multiply them."""
    store = a_store()
    app = Starlette(
        routes=[
            Route("/a", hello, middleware=limiting(store)),
            Route("/b/{id}", hello, middleware=limiting(store)),
            Route("/c", hello, methods=["GET"], middleware=limiting(store)),
            Route("/c", hello, methods=["POST"], middleware=limiting(store)),
        ]
    )
    assert await statuses(app, "/a", "/b/1", "/b/2", "/a", "/c") == [200, 200, 429, 429, 200]
    assert await statuses(app, "/c", "/c", method="POST") == [200, 429]


async def test_mounts_with_a_middleware_each_do_not_share() -> None:
    """Around the mount or inside of what is mounted; all routes below share one limit."""
    store = a_store()
    inner = [Route("/x", hello), Route("/y", hello)]
    app = Starlette(
        routes=[
            Mount("/a", routes=inner, middleware=limiting(store)),
            Mount("/b", Starlette(routes=inner, middleware=limiting(store))),
            Mount("/{tenant}", Starlette(routes=inner, middleware=limiting(store))),
        ],
        middleware=limiting(store, "100/minute"),
    )
    assert await statuses(app, "/a/x", "/a/y", "/b/x", "/b/y", "/c/x", "/d/x") == [200, 429, 200, 429, 200, 429]


async def test_rules_within_a_mount_do_not_share_with_others() -> None:
    """Their names begin with that of their middleware."""
    store = a_store()
    rules = [Rule("/x", "1/minute")]
    mounts = [
        Mount(path, Starlette(routes=[Route("/x", hello)], middleware=limiting(store, None, rules=rules)))
        for path in ("/a", "/b")
    ]
    assert await statuses(Starlette(routes=mounts), "/a/x", "/b/x", "/a/x") == [200, 200, 429]


async def test_a_name_shares_wherever_it_stands() -> None:
    """On purpose, then."""
    store = a_store()
    app = Starlette(routes=[Route(path, hello, middleware=limiting(store, name="both")) for path in ("/a", "/b")])
    assert await statuses(app, "/a", "/b") == [200, 429]


async def test_processes_agree_on_places() -> None:
    """Two apps of the same routes have the same buckets, in whatever order they are first asked."""
    store = a_store()

    def an_app() -> Starlette:
        return Starlette(routes=[Route(path, hello, middleware=limiting(store)) for path in ("/a", "/b")])

    one, other = an_app(), an_app()
    assert await statuses(one, "/a") == [200]
    assert await statuses(other, "/b", "/a") == [200, 429]


async def test_a_router_that_fastapi_includes_has_places_too() -> None:
    """Mounts in it keep their middleware."""
    store = a_store()
    router = APIRouter()
    for path in ("/a", "/b"):
        router.mount(path, Starlette(routes=[Route("/x", hello)], middleware=limiting(store)))
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    assert await statuses(app, "/v1/a/x", "/v1/b/x", "/v1/a/x") == [200, 200, 429]


async def test_a_place_that_cannot_be_found_is_the_root_path() -> None:
    """Behind something that hides it, what is left is what the request says."""

    def hiding(app: Any) -> Any:
        async def hidden(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

        return hidden

    store = a_store()
    mounts = [Mount(path, hiding(RateLimitMiddleware(ok, "1/minute", store=store))) for path in ("/a", "/b")]
    assert await statuses(Router(mounts), "/a/", "/b/", "/a/") == [200, 200, 429]


# Claims


def test_one_name_with_two_quotas_on_one_store_is_refused() -> None:
    """When the second is built, with both quotas and a way out."""
    store = a_store()
    first = RateLimitMiddleware(ok, "10/minute", store=store, name="api")
    with pytest.raises(ConfigurationError, match=CONFLICT + r'.*name="uploads"'):
        RateLimitMiddleware(ok, "20/minute", store=store, name="api")
    assert first.app is ok


def test_rules_claim_their_names() -> None:
    """Against middlewares and against dependencies."""
    store = a_store()
    first = RateLimitMiddleware(ok, rules=[Rule("/", "10/minute", name="api")], store=store, name="first")
    with pytest.raises(ConfigurationError, match=CONFLICT):
        RateLimit("20/minute", store=store, name="api")
    second = RateLimit("30/hour", store=store, name="api")
    with pytest.raises(ConfigurationError, match=CONFLICT):
        RateLimitMiddleware(ok, rules=[Rule("/", "31/hour", name="api")], store=store, name="third")
    assert first
    assert second


def test_equal_quotas_and_other_stores_are_no_conflict() -> None:
    """One name may be shared on purpose, and means nothing across stores."""
    store = a_store()
    kept = [
        RateLimitMiddleware(ok, "10/minute", store=store, name="api"),
        RateLimitMiddleware(ok, "10/minute", store=store, name="api"),
        RateLimitMiddleware(ok, "20/hour", store=store, name="api"),
        RateLimitMiddleware(ok, "30/minute", store=a_store(), name="api"),
        RateLimitMiddleware(ok, lambda connection: "40/minute", store=store, name="api"),
    ]
    assert len(kept) == 5


def test_who_is_gone_claims_nothing() -> None:
    """An app that was built for one test is no conflict for the next, not even if it was part of a circle."""
    store = a_store()
    for limit in range(1, 20):
        app = Starlette(middleware=limiting(store, f"{limit}/minute", name="api"))
        app.state.itself = app
        app.middleware_stack = app.build_middleware_stack()
        del app


async def test_a_conflict_without_names_is_told_at_start_up() -> None:
    """The server hears that the app cannot start, and why."""
    store = a_store()
    one = Starlette(routes=[Route("/", hello)], middleware=limiting(store, "10/minute"))
    other = Starlette(routes=[Route("/", hello)], middleware=limiting(store, "20/minute"))
    started = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await one({"type": "lifespan"}, started.receive, started.send)
    refused = Peer([{"type": "lifespan.startup"}])
    await other({"type": "lifespan"}, refused.receive, refused.send)
    assert [message["type"] for message in started.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [message["type"] for message in refused.sent] == ["lifespan.startup.failed"]
    assert "two limits named 'default' share a store" in refused.sent[0]["message"]


async def test_a_conflict_of_dependencies_is_told() -> None:
    """Of those that take the store of the middleware, when they first meet there."""
    app = FastAPI(dependencies=[Depends(RateLimit("10/minute", name="api"))])
    app.get("/", dependencies=[Depends(RateLimit("20/minute", name="api"))])(lambda: "hello")
    app.add_middleware(RateLimitMiddleware, store=a_store())
    with pytest.raises(ConfigurationError, match=CONFLICT):
        await ask(app)
