"""The middleware, message by message: what it adds to an answer, and that it leaves the rest alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import RateLimitMiddleware
from tests.support.asgi import CLIENT, Peer, ask, http, limited, ok, sends, websocket

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["lifespan.extension", ""])
async def test_connections_of_other_types_pass(kind: str) -> None:
    """A scope that is neither HTTP nor WebSocket nor lifespan goes to the app as it came, and is not limited."""
    scope, peer, seen = http(type=kind), Peer(), []

    async def app(*arguments: Any) -> None:
        seen.append(arguments)

    await limited(app)(scope, peer.receive, peer.send)
    assert seen == [(scope, peer.receive, peer.send)]


@pytest.mark.parametrize("scope", [http(), websocket()], ids=["http", "websocket"])
async def test_the_app_is_called_once(scope: Scope) -> None:
    """It gets the very scope, with one thing added while it runs, and the very ``receive`` of the server."""
    peer, before, seen = Peer(), copy.deepcopy(scope), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, {name for name in scope if name not in before}))

    await limited(app)(scope, peer.receive, peer.send)
    assert seen == [(scope, peer.receive, {"asgi_ratelimit"})]
    assert seen[0][0] is scope
    assert scope == before


async def test_the_body_of_a_request_is_left_to_the_app() -> None:
    """Nothing is read before the app reads, and every chunk arrives as it was sent."""
    chunks = [{"type": "http.request", "body": b"%d" % n, "more_body": n < 2} for n in range(3)]
    seen: list[Message] = []
    peer = Peer(chunks)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert peer.reads == 0
        seen.extend([await receive() for _ in range(4)])

    await limited(app)(http(method="POST"), peer.receive, peer.send)
    assert [id(message) for message in seen[:3]] == [id(chunk) for chunk in chunks]
    assert seen[3] == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    "headers",
    [[], ((b"x-own", b"1"),), [[b"x-own", b"1"]], [(b"set-cookie", b"a"), (b"set-cookie", b"b")]],
    ids=["none", "tuple", "lists", "repeated"],
)
async def test_the_messages_of_the_app_are_not_changed(headers: Any) -> None:
    """The app may send one message again and again: headers go into a copy, after its own."""
    message = {"type": "http.response.start", "status": 201, "headers": headers, "trailers": True, "extra": 1}
    before = copy.deepcopy(message)
    app = limited(sends(message))
    for _ in range(2):
        (start,) = (await ask(app)).sent
        assert {**start, "headers": None} == {**before, "headers": None}
        assert list(start["headers"][:-2]) == list(headers)
        assert [name for name, _ in start["headers"][-2:]] == [b"ratelimit-policy", b"ratelimit"]
    assert message == before


# In a user's own tests


def test_the_test_client_may_use_redis(redis_url: str) -> None:
    """Inside ``with`` its requests and the lifespan share an event loop, and connections are closed at its end.

    An app that is started twice in one process goes on with the same store.
    """
    app = Starlette(routes=[Mount("/", ok)], middleware=[Middleware(RateLimitMiddleware, "2/hour", store=redis_url)])
    for expected in ([200, 200, 429], [429]):
        with TestClient(app) as client:
            assert [client.get("/").status_code for _ in expected] == expected


# What is charged


async def test_every_client_has_a_bucket() -> None:
    """By default the key is the client's address, and the port does not matter; without an address, there is none."""
    app = limited(ok, "1/minute")
    clients = [CLIENT, ("192.0.2.2", 1), (CLIENT[0], 2), None, None]
    assert [(await ask(app, http(client=client))).status for client in clients] == [200, 200, 429, 200, 200]
