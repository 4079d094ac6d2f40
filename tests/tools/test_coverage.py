"""Coverage: which routes are limited, which are exempt, and which are neither; and mistakes in valid limits."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.routing import Mount, Route, Router, WebSocketRoute

from asgi_ratelimit import Limiter, MemoryStore, RateLimit, RateLimitMiddleware, Rule
from asgi_ratelimit.tools import Covered, coverage
from asgi_ratelimit.tools.coverage import routes_of, rules_of
from tests.support.asgi import ask, hello, http, ok

pytestmark = pytest.mark.anyio


async def talk(session: WebSocket) -> None:
    await session.accept()


def within(quota: Any = None, *rules: Rule, **options: Any) -> list[Middleware]:
    return [Middleware(RateLimitMiddleware, quota, rules=rules, **options)]


def limits_by_route(app: Any) -> dict[tuple[str, tuple[str, ...]], tuple[str, ...] | str]:
    """The limits of each path and methods, or ``"exempt"``, or ``"none"``."""
    listed = coverage(app)
    return {(each.path, each.methods): each.limits or ("exempt" if each.is_exempt else "none") for each in listed}


def named(name: str) -> Any:
    return Depends(RateLimit("5/minute", name=name))


def inner(_: Annotated[Any, named("within")]) -> None: ...


def test_every_route_is_listed_with_its_limits() -> None:
    """By the middleware's own quota, by rules for some methods, by an ``only`` rule, or exempt."""
    rules = [
        Rule("/login", "3/minute", methods=["POST"]),
        Rule("/export", "1/hour", only=True),
        Rule("/health", None),
        Rule("/shadow", "1/s", shadow=True),
    ]
    paths = ["/login", "/export", "/health", "/shadow"]
    routes = [Route(path, hello, methods=["GET", "POST"]) for path in paths]
    assert limits_by_route(Starlette(routes=routes, middleware=within("100/minute", *rules))) == {
        ("/login", ("GET",)): ("default: 100/minute",),
        ("/login", ("POST",)): ("default: 100/minute", "default POST /login: 3/minute"),
        ("/export", ("GET", "POST")): ("default /export: 1/hour",),
        ("/health", ("GET", "POST")): "exempt",
        ("/shadow", ("GET", "POST")): ("default: 100/minute",),
    }


def test_routes_without_limits_are_reported() -> None:
    """A shadow rule, and a rule for some of the paths or methods, is no limit of the route."""
    rules = [Rule("/a", "1/s", shadow=True), Rule("/users/me", "1/s"), Rule("/b", "1/s", methods=["POST"])]
    routes = [Route("/a", hello), Route("/users/{id}", hello), Route("/b", hello), WebSocketRoute("/ws", talk)]
    app = Starlette(routes=routes, middleware=within(None, *rules))
    assert set(limits_by_route(app).values()) == {"none"}
    assert not any(each.is_covered for each in coverage(app))


def test_mounts_hosts_and_apps_within_apps() -> None:
    """Rules match the path below the mount of their middleware, which may have parameters."""
    inner = Starlette(routes=[Route("/x/{id:int}", hello)], middleware=within(None, Rule("/x/{id}", "1/s", name="in")))
    mounts = [
        Mount("/{tenant}/v1", inner),
        Mount("/v2", routes=[Route("/y", hello)], middleware=within("2/s", name="mount")),
        Mount("/static", ok),
        Mount("/own", Router([Route("/z", hello)], middleware=within("4/s", name="router"))),
    ]
    app = Starlette(routes=mounts, middleware=within(None, Rule("/{tenant}/v1/{rest:path}", "3/s", name="out")))
    assert limits_by_route(app) == {
        ("/{tenant}/v1/x/{id:int}", ("GET",)): ("out: 3/second", "in: 1/second"),
        ("/v2/y", ("GET",)): ("mount: 2/second",),
        ("/static/{path:path}", ()): "none",
        ("/own/z", ("GET",)): ("router: 4/second",),
    }


def test_a_route_for_any_method_is_checked_for_each() -> None:
    """A limit for some methods does not cover the others."""

    class Endpoint(HTTPEndpoint):
        pass

    rule = Rule("/", "1/s", methods=["POST"], name="post")
    app = Starlette(routes=[Route("/", Endpoint)], middleware=within(None, rule))
    others = ("DELETE", "GET", "OPTIONS", "PATCH", "PUT")
    assert limits_by_route(app) == {("/", others): "none", ("/", ("POST",)): ("post: 1/second",)}


def test_dependencies_at_every_level() -> None:
    """Of the app, of nested routers, of their inclusion, of the route, and of other dependencies."""

    leaf, branch = APIRouter(dependencies=[named("leaf")]), APIRouter()
    leaf.get("/{id}", dependencies=[named("route"), Depends(inner)])(hello)
    leaf.websocket("/ws")(talk)
    branch.include_router(leaf, prefix="/leaf", dependencies=[named("branch")])
    app = FastAPI(dependencies=[named("app")])
    app.include_router(branch, prefix="/v1")
    app.add_route("/plain", hello)
    covered = coverage(app)
    assert [(each.path, each.is_websocket) for each in covered] == [
        ("/v1/leaf/{id}", False),
        ("/v1/leaf/ws", True),
        ("/plain", False),
    ]
    names = [{limit.partition(":")[0] for limit in each.limits} for each in covered]
    assert names == [{"app", "branch", "leaf", "route", "within"}, {"app", "branch", "leaf"}, set()]


def test_a_limit_without_a_name_is_listed_by_its_route() -> None:
    """By the name that its bucket and overrides have; one on several routes has none, and the app does not start."""
    app, several = FastAPI(), RateLimit("1/hour")
    both = RateLimit.together(RateLimit("5/minute"), RateLimit("9/hour", name="b"), RateLimit("7/hour"))
    app.get("/search", dependencies=[Depends(both), Depends(RateLimit("9/day"))])(hello)
    app.post("/a", dependencies=[Depends(several)])(hello)
    app.post("/b", dependencies=[Depends(several)])(hello)
    searched, *posted = coverage(app)
    assert searched.limits == ("GET /search: 5/minute", "b: 9/hour", "GET /search 2: 7/hour", "GET /search 3: 9/day")
    assert [each.limits for each in posted] == [("(unnamed): 1/hour",)] * 2


def test_limits_of_messages_are_shown() -> None:
    """For a WebSocket, which is covered even if its handshake is exempt; a plain route has no messages."""
    rules = [Rule("/ws", None, messages="1/s"), Rule("/{name}", "2/s", messages="5/s burst 2", name="both")]
    routes = [WebSocketRoute("/ws", talk), WebSocketRoute("/chat", talk), Route("/chat", hello), Route("/ws", hello)]
    assert coverage(Starlette(routes=routes, middleware=within(None, *rules))) == [
        Covered("/ws", (), True, ("default /ws: messages 1/second",), True),
        Covered("/chat", (), True, ("both: 2/second, messages 5/second burst 2",), False),
        Covered("/chat", ("GET",), False, ("both: 2/second",), False),
        Covered("/ws", ("GET",), False, ("both: 2/second",), False),
    ]


async def test_limits_have_the_names_under_which_they_count() -> None:
    """Before the first request as after it, so that a command can change what another one lists."""
    store = MemoryStore()
    mounted = Starlette(routes=[Route("/x", hello)], middleware=within("2/hour", Rule("/x", "9/hour"), store=store))
    route = Route("/y", hello, middleware=within("3/hour", store=store))
    app = Starlette(routes=[Mount("/a", mounted), route], middleware=within("4/hour", store=store))
    before = coverage(app)
    assert [each.limits for each in before] == [
        ("default: 4/hour", "default /a: 2/hour", "default /a /x: 9/hour"),
        ("default: 4/hour", "default GET /y: 3/hour"),
    ]
    for path in ("/a/x", "/y"):
        await ask(app, http(path))
    assert coverage(app) == before
    names = {"default": 4, "default /a": 2, "default GET /y": 3}
    for name, limit in names.items():
        assert (await Limiter(f"{limit}/hour", store=store, name=name).peek("192.0.2.1")).remaining < limit


# Mistakes in valid limits


def test_limits_of_one_name_on_one_server() -> None:
    """Two middlewares may name it by the same URL: their buckets are the same ones; those of mounts are not."""
    url, inner = "redis://localhost:6379/5", Starlette(routes=[Route("/x", hello)])
    inner.add_middleware(RateLimitMiddleware, "2/minute", name="api", store=url)
    app = Starlette(routes=[Mount("/a", inner)], middleware=within("9/minute", name="api", store=url))
    (problem,) = rules_of(routes_of(app))[1]
    assert problem.startswith("two limits named 'api' share a store and have different quotas named 'per-minute', ")
    inner = Starlette(routes=[Route("/x", hello)], middleware=within("2/minute", store=url))
    app = Starlette(routes=[Mount("/a", inner)], middleware=within("9/minute", store=url))
    assert rules_of(routes_of(app))[1] == []


def test_an_app_that_limits_nothing() -> None:
    """It has no middleware, or one that has no quota, no rules, and no dependencies within it."""
    unlimited = Middleware(RateLimitMiddleware, name="a")
    for app in (an_app(), an_app(unlimited)):
        rules, (finding,) = rules_of(routes_of(app))
        assert rules == []
        assert finding.endswith('nothing is limited: quota="9/minute"')
    both = [unlimited, Middleware(RateLimitMiddleware, "5/minute", name="b")]
    assert [rules_of(routes_of(an_app(*each)))[1] for each in (both, both[::-1])] == [[], []]


def an_app(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/", ok)], middleware=middleware)
