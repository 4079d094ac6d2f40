"""Names: no two limits share a bucket by accident, neither by their places nor by their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Match, Mount, Route, Router
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import (
    ConfigurationError,
    Limiter,
    MemoryStore,
    RateLimit,
    RateLimitMiddleware,
    Rule,
    TokenBucket,
)
from asgi_ratelimit.dashboard import summary
from asgi_ratelimit.hooks import Failure, failures
from asgi_ratelimit.stores.name_owners import owned
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools import coverage
from tests.support.asgi import Peer, ask, http, ok

pytestmark = pytest.mark.anyio

CONFLICT = r"two limits named 'api' share a store .* \"\d+/\w+\" and \"\d+/\w+\""


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
    """Equal quotas on one store are two limits; all values of a path parameter share one."""
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
    """Around the mount or inside the mounted app; all routes below share one limit."""
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
    """Their names begin with the name of their middleware."""
    store = a_store()
    rules = [Rule("/x", "1/minute")]
    mounts = [
        Mount(path, Starlette(routes=[Route("/x", hello)], middleware=limiting(store, None, rules=rules)))
        for path in ("/a", "/b")
    ]
    assert await statuses(Starlette(routes=mounts), "/a/x", "/b/x", "/a/x") == [200, 200, 429]


def shop(*limits: RateLimit) -> FastAPI:
    app = FastAPI()
    app.add_api_route("/items", lambda: 1, dependencies=[Depends(each) for each in limits])
    return app


async def statuses_on(app: Any, *hosts: str) -> list[int]:
    """The statuses of a request to each of these hosts."""
    return [(await ask(app, http("/items", headers=[(b"host", host.encode())]))).status for host in hosts]


async def test_hosts_do_not_share() -> None:
    """A route under two hosts is two routes, whether a dependency limits it or a middleware."""
    store = a_store()
    app = Starlette(
        routes=[
            Host("a.example", shop(RateLimit("1/minute"))),
            Host("b.example", shop(RateLimit("2/minute"))),
            Host("c.example", Starlette(routes=[Route("/items", hello)], middleware=limiting(store))),
            Host("{shop}.example", Starlette(routes=[Route("/items", hello)], middleware=limiting(store))),
        ],
        middleware=limiting(a_store(), None),
    )
    hosts = ["a.example", "b.example", "c.example", "d.example"]
    assert await statuses_on(app, *hosts, *hosts) == [200] * 4 + [429, 200, 429, 429]


async def test_a_limit_under_several_hosts_is_one() -> None:
    """Such as the same app under two names."""
    app = shop(RateLimit("1/minute"))
    both = Starlette(routes=[Host("example", app), Host("www.example", app)], middleware=limiting(a_store(), None))
    assert await statuses_on(both, "example", "www.example") == [200, 429]


async def test_two_apps_under_several_hosts_do_not_share() -> None:
    """Each limit has the name of the first host, and one outside of all hosts has none."""
    shop_app, admin, other = (shop(RateLimit("1/minute")) for _ in range(3))
    hosts = {"example": shop_app, "www.example": shop_app, "admin.example": admin, "{any}.admin.example": admin}
    routes = [*[Host(name, app) for name, app in hosts.items()], Mount("/", other)]
    app = Starlette(routes=routes, middleware=limiting(a_store(), None))
    asked = ["example", "admin.example", "elsewhere", "www.example", "www.admin.example", "elsewhere"]
    assert await statuses_on(app, *asked) == [200, 200, 200, 429, 429, 429]
    assert [each.limits for each in coverage(app)] == [
        *[("GET example/items: 1/minute",)] * 2,
        *[("GET admin.example/items: 1/minute",)] * 2,
        ("GET /items: 1/minute",),
    ]


async def test_a_further_host_changes_no_name() -> None:
    """So the buckets stay the same from one deployment to the next."""
    store = a_store()
    for further in ([], ["www.example"]):
        app = shop(RateLimit("1/minute", store=store))
        routes = [Host(name, app) for name in ["example", *further]]
        assert await statuses_on(Starlette(routes=routes), "example") == [429 if further else 200]


async def test_two_routes_of_one_path_do_not_share() -> None:
    """As where a route class decides by a header which of them a request is for."""

    class Versioned(APIRoute):
        def matches(self, scope: Scope) -> tuple[Match, Scope]:
            match, child = super().matches(scope)
            wanted = dict(scope["headers"]).get(b"x-version", b"a").decode()
            return (match if self.name == wanted else Match.NONE), child

    app = FastAPI()
    app.router.route_class = Versioned
    shared = Depends(RateLimit("9/hour"))
    app.get("/", name="a", dependencies=[Depends(RateLimit("1/minute")), shared])(lambda: "a")
    app.get("/", name="b", dependencies=[Depends(RateLimit("1/minute")), shared])(lambda: "b")
    versions = [(await ask(app, http(headers=[(b"x-version", each)]))).status for each in (b"a", b"b", b"a", b"b")]
    assert versions == [200, 200, 429, 429]


async def test_failures_within_a_mount_have_its_name() -> None:
    """Those of lists and of ``on_limited`` as well, which belong to no rule."""
    seen: list[Failure] = []
    options: dict[str, Any] = {"hooks": [failures(seen.append)], "on_limited": lambda request, decision: 1 / 0}
    inner = limiting(a_store(), deny=lambda request: 1 / 0, **options)
    app = Starlette(routes=[Mount("/a", routes=[Route("/x", hello)], middleware=inner)])
    assert await statuses(app, "/a/x", "/a/x") == [200, 429]
    assert [(each.name, each.failed) for each in seen[1:]] == [("default /a", "deny"), ("default /a", "on_limited")]


async def test_limits_of_one_name_share_in_all_places() -> None:
    """A name is there to share buckets on purpose."""
    store = a_store()
    app = Starlette(routes=[Route(path, hello, middleware=limiting(store, name="both")) for path in ("/a", "/b")])
    assert await statuses(app, "/a", "/b") == [200, 429]


async def test_processes_agree_on_places() -> None:
    """Two apps with the same routes have the same buckets, in any order of their first requests."""
    store = a_store()

    def an_app() -> Starlette:
        return Starlette(routes=[Route(path, hello, middleware=limiting(store)) for path in ("/a", "/b")])

    one, other = an_app(), an_app()
    assert await statuses(one, "/a") == [200]
    assert await statuses(other, "/b", "/a") == [200, 429]


async def test_a_router_that_fastapi_includes_has_places_too() -> None:
    """The middleware of mounts in it applies."""
    store = a_store()
    router = APIRouter()
    for path in ("/a", "/b"):
        router.mount(path, Starlette(routes=[Route("/x", hello)], middleware=limiting(store)))
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    assert await statuses(app, "/v1/a/x", "/v1/b/x", "/v1/a/x") == [200, 200, 429]


def hiding(app: Any) -> Any:
    """The app in a wrapper that hides it from the walk through the routes."""

    async def hidden(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return hidden


async def test_the_place_of_a_hidden_middleware_is_the_root_path() -> None:
    """That of its first request."""
    store = a_store()
    mounts = [Mount(path, hiding(RateLimitMiddleware(ok, "1/minute", store=store))) for path in ("/a", "/b")]
    assert await statuses(Router(mounts), "/a/", "/b/", "/a/") == [200, 200, 429]


async def test_processes_agree_on_the_place_of_a_hidden_middleware() -> None:
    """Whatever the values in the path of their first requests."""
    store = a_store()

    def an_app() -> Router:
        limited = RateLimitMiddleware(ok, "1/minute", store=store)
        return Router([Mount("/{tenant}/{number:int}", hiding(limited))])

    assert await statuses(an_app(), "/acme/1/") == [200]
    assert await statuses(an_app(), "/beta/2/", "/acme/1/") == [429, 429]


# Owners


def test_one_name_with_two_quotas_on_one_store_is_refused() -> None:
    """When the second limit is built; the error shows both quotas and the remedy."""
    store = a_store()
    first = RateLimitMiddleware(ok, "10/minute", store=store, name="api")
    with pytest.raises(ConfigurationError, match=CONFLICT + r'.*name="uploads"'):
        RateLimitMiddleware(ok, "20/minute", store=store, name="api")
    assert first.app is ok


def test_rules_own_their_names() -> None:
    """Middlewares and dependencies must agree with them."""
    store = a_store()
    first = RateLimitMiddleware(ok, rules=[Rule("/", "10/minute", name="api")], store=store, name="first")
    with pytest.raises(ConfigurationError, match=CONFLICT):
        RateLimit("20/minute", store=store, name="api")
    second = RateLimit("30/hour", store=store, name="api")
    with pytest.raises(ConfigurationError, match=CONFLICT):
        RateLimitMiddleware(ok, rules=[Rule("/", "31/hour", name="api")], store=store, name="third")
    assert first
    assert second


def test_messages_own_their_names() -> None:
    """Which is that of their rule and ``messages``: limiters, dependencies and other middlewares must agree with it."""
    store = a_store()
    chat = Rule("/chat", None, messages="10/minute", name="chat")
    first = RateLimitMiddleware(ok, rules=[chat], store=store, name="first")
    others: list[Any] = [
        lambda: Limiter("9/minute", store=store, name="chat messages"),
        lambda: RateLimit("9/minute", store=store, name="chat messages"),
        lambda: RateLimitMiddleware(ok, "9/minute", store=store, name="chat messages"),
        lambda: RateLimitMiddleware(ok, rules=[replace(chat, messages="9/minute")], store=store, name="other"),
    ]
    for build in others:
        with pytest.raises(
            ConfigurationError, match=r"two limits named 'chat messages' share a store .* named 'per-min"
        ):
            build()
    second = Limiter("5/hour", store=store, name="chat messages")
    with pytest.raises(ConfigurationError, match=r"two limits named 'chat messages' share a store .* named 'per-hour'"):
        RateLimitMiddleware(ok, rules=[replace(chat, messages="6/hour")], store=store, name="other")
    assert first
    assert second


async def test_the_names_of_messages_are_not_those_of_rules() -> None:
    """The page and overrides know the rule, which is what an override changes."""
    store = a_store()
    chat, other = Rule("/chat", None, messages="10/minute", name="chat"), Rule("/", "9/hour", name="hourly messages")
    app = RateLimitMiddleware(ok, rules=[chat, other], store=store)
    assert (await ask(app)).status == 200
    assert list(owned(store)) == [("hourly messages", TokenBucket(9, 3600, name="per-hour"))]
    assert [row.name for row in (await summary(store)).rules] == ["hourly messages"]


def test_equal_quotas_and_other_stores_are_no_conflict() -> None:
    """One name may be shared on purpose, and stores are independent."""
    store = a_store()
    middlewares = [
        RateLimitMiddleware(ok, "10/minute", store=store, name="api"),
        RateLimitMiddleware(ok, "10/minute", store=store, name="api"),
        RateLimitMiddleware(ok, "20/hour", store=store, name="api"),
        RateLimitMiddleware(ok, "30/minute", store=a_store(), name="api"),
        RateLimitMiddleware(ok, lambda connection: "40/minute", store=store, name="api"),
    ]
    assert len(middlewares) == 5


async def test_a_conflict_without_names_fails_the_start_up() -> None:
    """The server receives the reason why the app cannot start."""
    store = a_store()
    one = Starlette(routes=[Route("/", hello)], middleware=limiting(store, "10/minute"))
    other = Starlette(routes=[Route("/", hello)], middleware=limiting(store, "20/minute"))
    started = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await one({"type": "lifespan"}, started.receive, started.send)
    refused = Peer([{"type": "lifespan.startup"}])
    with pytest.raises(ConfigurationError):
        await other({"type": "lifespan"}, refused.receive, refused.send)
    assert [message["type"] for message in started.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [message["type"] for message in refused.sent] == ["lifespan.startup.failed"]
    assert "two limits named 'default' share a store" in refused.sent[0]["message"]
    with pytest.raises(ConfigurationError), TestClient(other):  # which would wait for ever if nothing were raised
        pass


def conflicting(**options: Any) -> FastAPI:
    """Two dependencies of one name on two routes, which differ in their quotas."""
    app = FastAPI(**options)
    app.get("/first", dependencies=[Depends(RateLimit("10/minute", name="api"))])(lambda: "hello")
    app.get("/second", dependencies=[Depends(RateLimit("20/minute", name="api"))])(lambda: "hello")
    return app


async def test_a_conflict_of_dependencies_fails_the_start_up() -> None:
    """With the middleware around the app, the server receives the reason."""
    app = conflicting()
    app.add_middleware(RateLimitMiddleware, store=a_store())
    refused = Peer([{"type": "lifespan.startup"}])
    with pytest.raises(ConfigurationError, match=CONFLICT):
        await app({"type": "lifespan"}, refused.receive, refused.send)
    assert [message["type"] for message in refused.sent] == ["lifespan.startup.failed"]


async def test_a_conflict_of_a_dependency_with_a_rule_fails_the_start_up() -> None:
    """They share the store of the middleware."""
    app = FastAPI(dependencies=[Depends(RateLimit("10/minute", name="api"))])
    app.get("/")(lambda: "hello")
    app.add_middleware(RateLimitMiddleware, rules=[Rule("/", "20/minute", name="api")], store=a_store())
    refused = Peer([{"type": "lifespan.startup"}])
    with pytest.raises(ConfigurationError, match=CONFLICT):
        await app({"type": "lifespan"}, refused.receive, refused.send)


@pytest.mark.parametrize("within", [True, False], ids=["within", "alone"])
@pytest.mark.parametrize("paths", [["/first"], ["/second"], ["/second", "/first", "/second"]], ids=repr)
async def test_a_conflict_of_dependencies_raises(paths: list[str], within: bool) -> None:
    """At the first request for either of them, whichever comes, where the server runs no start-up."""
    app = conflicting()
    if within:
        app.add_middleware(RateLimitMiddleware, store=a_store())
    for path in paths:
        with pytest.raises(ConfigurationError, match=CONFLICT):
            await ask(app, http(path))


async def test_apps_without_a_store_do_not_share() -> None:
    """Each app has a memory of its own, so limits of another app, or of one that is gone, are no conflict."""
    for limit in ("1/minute", "2/minute"):
        app = FastAPI()
        app.get("/", dependencies=[Depends(RateLimit(limit, name="api"))])(lambda: "hello")
        assert await statuses(app, "/") == [200]
