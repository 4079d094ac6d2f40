"""The routes of an app, however they are nested."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import RateLimit, RateLimitMiddleware, Rule
from asgi_ratelimit.inbound.routes import AppRoute, RouteTemplates, example_path, place_of, walk
from tests.support.asgi import CHUNK, Peer, http, ok, websocket

pytestmark = pytest.mark.anyio


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def talk(session: WebSocket) -> None:
    await session.accept()
    await session.close()


class Endpoint(HTTPEndpoint):
    """A class as an endpoint, which takes any method."""


def dependency() -> None: ...


def dependent(answer: Annotated[None, Depends(dependency)]) -> None: ...


class Around:
    """A middleware."""

    def __init__(self, app: Any, name: str = "") -> None:
        self.app = app
        self.name = name


def paths(app: Any, **options: Any) -> list[str]:
    return [route.path for route in walk(app, **options)]


def places(app: Any, path: str) -> list[tuple[str, str, str]]:
    """This module's middlewares around a route: their names, places, and the paths below which they see requests."""
    (route,) = (route for route in walk(app, builds=True) if route.path == path)
    return [(each.app.name, each.place, each.base) for each in route.middlewares if isinstance(each.app, Around)]


def test_routes_of_starlette() -> None:
    """Of every kind, in their order, with their methods."""
    inner = Starlette(routes=[Route("/users/{id:int}", hello), WebSocketRoute("/ws", talk)])
    app = Starlette(
        routes=[
            Route("/", hello, methods=["POST", "PUT"]),
            Mount("/v1", inner),
            Mount("/static/", ok),
            Mount("/r", routes=[Route("/deep", hello), Mount("/er", Router([Route("/still", hello)]))]),
            Host("api.example.org", Router([Route("/host", hello)])),
            Route("/class", Endpoint),
        ]
    )
    assert [(route.path, route.methods and sorted(route.methods), route.is_websocket) for route in walk(app)] == [
        ("/", ["POST", "PUT"], False),
        ("/v1/users/{id:int}", ["GET", "HEAD"], False),
        ("/v1/ws", None, True),
        ("/static/{path:path}", None, False),
        ("/r/deep", ["GET", "HEAD"], False),
        ("/r/er/still", ["GET", "HEAD"], False),
        ("/host", ["GET", "HEAD"], False),
        ("/class", None, False),
    ]


def test_routes_of_fastapi() -> None:
    """At any depth, with the prefixes and the dependencies of the routers that they are in."""
    calls = [lambda n=n: n for n in range(5)]
    app_wide, of_include, of_branch, of_leaf, of_route = calls
    leaf, branch = APIRouter(prefix="/leaf", dependencies=[Depends(of_leaf)]), APIRouter()
    leaf.get("/{number}", dependencies=[Depends(of_route)])(hello)
    leaf.get("/", dependencies=[Depends(dependent)])(hello)
    leaf.websocket("/ws")(talk)
    branch.include_router(leaf, prefix="/branch", dependencies=[Depends(of_branch)])
    branch.mount("/mounted", Starlette(routes=[Route("/x", hello)]))
    branch.add_route("/plain", hello)
    app = FastAPI(openapi_url=None, dependencies=[Depends(app_wide)])
    app.include_router(branch, prefix="/v1", dependencies=[Depends(of_include)])
    route = {each.path: each for each in walk(app)}
    leaves = {f"/v1/branch/leaf/{each}" for each in ("", "ws", "{number}")}
    assert set(route) == leaves | {"/v1/mounted/x", "/v1/plain"}
    assert set(route["/v1/branch/leaf/"].dependencies) == {*calls[:-1], dependent, dependency}
    assert set(route["/v1/branch/leaf/{number}"].dependencies) == {*calls}
    assert set(route["/v1/branch/leaf/ws"].dependencies) == {*calls[:-1]}
    assert route["/v1/plain"].dependencies == ()
    assert route["/v1/branch/leaf/ws"].is_websocket


def test_every_middleware_has_its_place() -> None:
    """Around the app, a mount and a route; the path below which it sees requests is that of the mount."""
    route = Route("/x", hello, methods=["POST"], middleware=[Middleware(Around, "route")])
    inner = Starlette(routes=[route], middleware=[Middleware(Around, "inner")])
    mount = Mount("/v1", inner, middleware=[Middleware(Around, "mount")])
    app = Around(Starlette(routes=[mount], middleware=[Middleware(Around, "app")]), "outside")
    assert places(app, "/v1/x") == [
        ("outside", "", ""),
        ("app", "", ""),
        ("mount", "/v1", "/v1"),
        ("inner", "/v1", "/v1"),
        ("route", "POST /v1/x", "/v1"),
    ]
    router = Router([mount])
    assert [place_of(each, router) for each in (mount.app, route.app, app)] == ["/v1", "POST /v1/x", None]


CYCLE = Around(None)
CYCLE.app = CYCLE


@pytest.mark.parametrize("app", [ok, Around(ok), object(), CYCLE], ids=["plain", "in", "no app", "around itself"])
def test_an_app_of_an_unknown_kind_is_one_route(app: Any) -> None:
    """For all paths and methods, because any of them is possible."""
    (route,) = walk(Router([Mount("/below", app)]))
    assert route == AppRoute("/below/{path:path}", None, False, route.middlewares, (), route.endpoint)


def test_an_app_may_be_mounted_in_itself() -> None:
    """As where the same routes have a second path; the walk finds them once."""
    app = FastAPI(dependencies=[Depends(RateLimit("5/minute"))])
    app.get("/x")(hello)
    app.mount("/v1", app)
    app.add_middleware(RateLimitMiddleware, rules=[Rule("/x", "10/minute")])
    assert paths(app)[-1] == "/x"
    with TestClient(app) as client:
        assert [client.get(path).status_code for path in ("/x", "/v1/x")] == [200, 200]


class OwnRoute(BaseRoute):
    """A route of the program's own, with a ``path`` of any kind, or none, and without an ``endpoint``."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await ok(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "walked"),
    [("/a", ["/a"]), ("a", []), (None, []), (re.compile("/a"), [])],
    ids=["text", "bare", "no", "re"],
)
def test_a_route_of_ones_own_is_limited(path: Any, walked: list[str]) -> None:
    """The walk finds it if its path is a text like those of Starlette."""
    app = Starlette(routes=[OwnRoute(path)])
    app.add_middleware(RateLimitMiddleware, rules=[Rule("/a", "1/minute")])
    assert paths(app) == walked
    with TestClient(app) as client:
        assert [client.get("/a").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("/", "/"),
        ("/users/{id}", "/users/any.id"),
        ("/users/{id:int}/{rest:path}", "/users/987654321/any.rest"),
        ("/price/{amount:float}", "/price/98765.5"),
        ("/jobs/{id:uuid}", "/jobs/80000000-0000-0000-0000-000000000000"),
    ],
)
def test_an_example_of_a_path(path: str, made: str) -> None:
    """The template matches it."""
    assert example_path(path) == made


# The template of the route that a request is for


async def both(app: Any, scope: Scope) -> list[str | None]:
    """What a middleware around the app finds before the app has run, and after."""
    templates, found = RouteTemplates(app), []

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(templates.of(scope))
        await app(scope, receive, send)
        found.append(templates.of(scope))

    peer = Peer([{"type": "websocket.connect"}] if scope["type"] == "websocket" else [CHUNK])
    await around(scope, peer.receive, peer.send)
    return found


def nested() -> Starlette:
    inner = Starlette(routes=[Route("/users/{id:int}", hello), Route("/users/{name}", hello, methods=["PUT"])])
    return Starlette(
        routes=[
            Route("/", hello),
            Mount("/{tenant}/v1", inner),
            Mount("/static", ok),
            Host("api.example.org", Starlette(routes=[Route("/host", hello)])),
            WebSocketRoute("/ws/{room}", talk),
            Route("/ws/{room}", hello, methods=["POST"]),
            Mount("/{id}", routes=[Route("/{id}", hello)]),
        ]
    )


@pytest.mark.parametrize(
    ("scope", "template"),
    [
        (http("/"), "/"),
        (http("/acme/v1/users/7"), "/{tenant}/v1/users/{id:int}"),
        (http("/acme/v1/users/ann", method="PUT"), "/{tenant}/v1/users/{name}"),
        (http("/acme/v1/users/ann", method="GET"), "/{tenant}/v1/users/{name}"),
        (http("/acme/v1/nowhere"), None),
        (http("/static/a/b.css"), "/static/{path:path}"),
        (http("/host", headers=[(b"host", b"api.example.org")]), "/host"),
        (websocket("/ws/7"), "/ws/{room}"),
        (http("/nowhere"), None),
        (http("/1/2"), None),
        (http("/proxied/acme/v1/users/7", root_path="/proxied"), "/{tenant}/v1/users/{id:int}"),
    ],
    ids=[
        "root",
        "mount",
        "method",
        "not allowed",
        "404 in a mount",
        "app",
        "host",
        "socket",
        "404",
        "unreadable",
        "root path",
    ],
)
async def test_templates_of_starlette(scope: Scope, template: str | None) -> None:
    """Of every kind, and the same before and after."""
    assert await both(nested(), scope) == [template] * 2


@pytest.mark.parametrize("root", ["", "/api"])
async def test_templates_of_fastapi(root: str) -> None:
    """With the prefixes of the routers that they are in, and without the root path."""
    branch, app = APIRouter(prefix="/branch"), FastAPI()

    @branch.get("/{number}")
    async def item(number: int) -> int:
        return number

    app.include_router(branch, prefix="/v1")
    assert await both(app, http(f"{root}/v1/branch/7", root_path=root)) == ["/v1/branch/{number}"] * 2


def test_an_app_of_another_framework_is_one_template() -> None:
    """For all its paths."""
    assert RouteTemplates(ok).of(http("/any")) == "/{path:path}"
