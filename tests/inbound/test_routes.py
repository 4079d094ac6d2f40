"""The routes of an app are found wherever they are."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

from asgi_ratelimit.inbound.startup.routes import Found, example, place_of, walk
from tests.support.asgi import ok


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def talk(session: WebSocket) -> None:
    await session.accept()


class Endpoint(HTTPEndpoint):
    """A class as an endpoint, which takes any method."""


def asked() -> None: ...


def asking(answer: Annotated[None, Depends(asked)]) -> None: ...


class Around:
    """A middleware."""

    def __init__(self, app: Any, name: str = "") -> None:
        self.app = app
        self.name = name


def paths(app: Any, **options: Any) -> list[str]:
    return [found.path for found in walk(app, **options)]


def places(app: Any, path: str) -> list[tuple[str, str, str]]:
    """The middlewares of this module's around a route: their names, where they stand, and below what path."""
    (found,) = (found for found in walk(app, builds=True) if found.path == path)
    return [(each.app.name, each.place, each.base) for each in found.layers if isinstance(each.app, Around)]


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
    assert [(found.path, found.methods and sorted(found.methods), found.is_websocket) for found in walk(app)] == [
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
    """However deep they are nested, with the prefixes and the dependencies of all that they are in."""
    calls = [lambda n=n: n for n in range(5)]
    app_wide, of_include, of_branch, of_leaf, of_route = calls
    leaf, branch = APIRouter(prefix="/leaf", dependencies=[Depends(of_leaf)]), APIRouter()
    leaf.get("/{number}", dependencies=[Depends(of_route)])(hello)
    leaf.websocket("/ws")(talk)
    branch.include_router(leaf, prefix="/branch", dependencies=[Depends(of_branch)])
    branch.mount("/mounted", Starlette(routes=[Route("/x", hello)]))
    branch.add_route("/plain", hello)
    app = FastAPI(openapi_url=None, dependencies=[Depends(app_wide)])
    app.include_router(branch, prefix="/v1", dependencies=[Depends(of_include)])
    found = {each.path: each for each in walk(app)}
    assert set(found) == {"/v1/branch/leaf/{number}", "/v1/branch/leaf/ws", "/v1/mounted/x", "/v1/plain"}
    assert set(found["/v1/branch/leaf/{number}"].dependencies) == {*calls}
    assert set(found["/v1/branch/leaf/ws"].dependencies) == {*calls[:-1]}
    assert found["/v1/plain"].dependencies == ()
    assert found["/v1/branch/leaf/ws"].is_websocket


def test_dependencies_of_dependencies_are_found() -> None:
    """They are asked as well."""

    app = FastAPI(openapi_url=None)
    app.get("/", dependencies=[Depends(asking)])(hello)
    (found,) = walk(app)
    assert found.dependencies == (asking, asked)


def test_middleware_is_found_where_it_stands() -> None:
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


def test_middleware_of_an_app_that_runs_is_the_one_that_runs() -> None:
    """Nothing is built a second time for an app that has been called; one that has not is not built by itself."""
    built = []

    class Noted(Around):
        def __init__(self, app: Any) -> None:
            built.append(self)
            super().__init__(app)

    app = Starlette(routes=[Route("/", hello)], middleware=[Middleware(Noted)])
    assert paths(app) == ["/"]
    assert built == []
    app.middleware_stack = app.build_middleware_stack()
    (found,) = walk(app, builds=True)
    assert [layer.app for layer in found.layers if isinstance(layer.app, Noted)] == built
    assert len(built) == 1


def test_the_place_of_a_middleware() -> None:
    """By the mount or the route that it is around; one that is not there has none."""
    route = Route("/x/{id}", hello, methods=["GET", "PUT"], middleware=[Middleware(Around)])
    mount = Mount("/{tenant}", routes=[route], middleware=[Middleware(Around)])
    router = Router([mount])
    assert place_of(mount.app, router) == "/{tenant}"
    assert place_of(route.app, router) == "GET PUT /{tenant}/x/{id}"
    assert place_of(Around(None), router) is None


@pytest.mark.parametrize(
    "app", [ok, Around(ok), Around(CORSMiddleware(ok)), object()], ids=["plain", "in", "in two", "no app"]
)
def test_an_app_of_an_unknown_kind_is_one_route(app: Any) -> None:
    """For all paths and methods, so that nothing is taken for impossible."""
    (found,) = walk(app, "/below")
    assert found == Found("/below/{path:path}", None, False, found.layers, (), found.endpoint)


def test_a_circle_comes_to_an_end() -> None:
    """An app that is around itself is no reason to hang."""
    around = Around(None)
    around.app = around
    assert len(list(walk(around))) == 1


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
    """It is one that the path stands for."""
    assert example(path) == made
