"""The template of the route that a request is for, found before its routing and after it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from asgi_ratelimit.inbound.routes import RouteTemplates
from tests.support.asgi import CHUNK, Peer, http, ok, websocket

pytestmark = pytest.mark.anyio


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def by_number(request: Request) -> Response:
    return PlainTextResponse("number")


async def talk(session: WebSocket) -> None:
    await session.accept()
    await session.close()


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
    inner = Starlette(routes=[Route("/users/{id:int}", by_number), Route("/users/{name}", hello, methods=["PUT"])])
    return Starlette(
        routes=[
            Route("/", hello),
            Mount("/{tenant}/v1", inner),
            Mount("/static", ok),
            Host("api.example.org", Starlette(routes=[Route("/host", hello)])),
            WebSocketRoute("/ws/{room}", talk),
            Route("/ws/{room}", hello, methods=["POST"]),
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
        (http("/proxied/acme/v1/users/7", root_path="/proxied"), "/{tenant}/v1/users/{id:int}"),
    ],
    ids=["root", "mount", "method", "not allowed", "404 in a mount", "app", "host", "socket", "404", "root path"],
)
async def test_routes_of_starlette(scope: Scope, template: str | None) -> None:
    """Of every kind, and the same before and after."""
    assert await both(nested(), scope) == [template] * 2


@pytest.mark.parametrize("root", ["", "/api"])
async def test_routes_of_fastapi(root: str) -> None:
    """With the prefixes of the routers that they are in, and without the root path."""
    branch, app = APIRouter(prefix="/branch"), FastAPI()

    @branch.get("/{number}")
    async def item(number: int) -> int:
        return number

    app.include_router(branch, prefix="/v1")
    assert await both(app, http(f"{root}/v1/branch/7", root_path=root)) == ["/v1/branch/{number}"] * 2


def test_routes_that_cannot_be_read() -> None:
    """An app of another framework is one route for all its paths; parameters of one name in mounts are left out."""
    assert RouteTemplates(ok).of(http("/any")) == "/{path:path}"
    app = Starlette(routes=[Mount("/{id}", routes=[Route("/{id}", hello)])])
    assert RouteTemplates(app).of(http("/1/2")) is None
