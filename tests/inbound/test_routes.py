"""The routes of an app, however they are nested."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Host, Match, Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import RateLimit, RateLimitMiddleware, Rule
from asgi_ratelimit.inbound.routes import templates_of
from asgi_ratelimit.tools import coverage
from tests.support.asgi import CHUNK, Peer, hello, http, ok, websocket

pytestmark = pytest.mark.anyio


async def talk(session: WebSocket) -> None:
    await session.accept()
    await session.close()


def paths(app: Any) -> list[str]:
    return [covered.path for covered in coverage(app)]


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


# The template of the route that a request is for


async def both(app: Any, scope: Scope) -> list[str | None]:
    """What a middleware around the app finds before the app has run, and after."""
    template_of, found = templates_of(app), []

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(template_of(scope))
        await app(scope, receive, send)
        found.append(template_of(scope))

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
    assert templates_of(ok)(http("/any")) == "/{path:path}"
