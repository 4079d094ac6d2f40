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

from asgi_ratelimit import QuotaError, RateLimitMiddleware, Rule
from tests.support.asgi import BODY, POLICY, START, Peer, ask, crash, http, limited, ok, sends, starlette, websocket

pytestmark = pytest.mark.anyio


class Calls:
    """An app that records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[Scope, Receive, Send]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append((scope, receive, send))


@pytest.mark.parametrize("kind", ["lifespan.extension", "pubsub", "http3", ""])
async def test_connections_of_other_types_pass(kind: str) -> None:
    """A scope that is neither HTTP nor WebSocket nor lifespan goes to the app as it came, and is not limited."""
    app, scope, peer = Calls(), http(type=kind), Peer()
    await limited(app)(scope, peer.receive, peer.send)
    assert app.seen == [(scope, peer.receive, peer.send)]


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


async def test_an_app_that_fails_is_not_called_again() -> None:
    """An error of the app is no reason to call it again."""
    calls = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(scope)
        raise ZeroDivisionError

    await crash(Starlette(routes=[Mount("/", app)], middleware=[Middleware(limited)]), http())
    assert len(calls) == 1


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


async def test_an_answer_is_streamed() -> None:
    """Each chunk has left before the app goes on to the next one."""
    peer = Peer()
    chunks = [{"type": "http.response.body", "body": b"%d" % n, "more_body": n < 2} for n in range(3)]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for chunk in chunks:
            await send(chunk)
            assert peer.sent[-1] is chunk

    await limited(app)(http(), peer.receive, peer.send)
    assert len(peer.starts) == 1
    assert peer.body == b"012"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "http.response.push", "path": "/style.css", "headers": []},
        {"type": "http.response.pathsend", "path": "/srv/file"},
        {"type": "http.response.zerocopysend", "file": 7},
        {"type": "http.response.trailers", "headers": [(b"x-sum", b"1")], "more_trailers": False},
        {"type": "http.response.early_hint", "links": [b"</a.css>"]},
        {"type": "http.response.debug", "info": {"template": "index.html"}},
        {"type": "http.response.unheard-of", "headers": [(b"a", b"b")]},
        BODY,
    ],
    ids=lambda message: message["type"],
)
async def test_messages_pass_as_they_are(message: Message) -> None:
    """Every message that does not start an answer passes unchanged: the very object."""
    before = copy.deepcopy(message)
    peer = await ask(limited(sends(START, message)))
    assert peer.sent[1] is message
    assert message == before


@pytest.mark.parametrize(
    "headers",
    [[], [(b"x-own", b"1")], ((b"x-own", b"1"),), [[b"x-own", b"1"]], [(b"set-cookie", b"a"), (b"set-cookie", b"b")]],
    ids=["none", "list", "tuple", "lists", "repeated"],
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


async def test_an_answer_needs_no_headers_of_its_own() -> None:
    """ASGI lets an app leave its headers out."""
    peer = await ask(limited(sends({"type": "http.response.start", "status": 204})))
    assert set(peer.headers) == {"ratelimit-policy", "ratelimit"}


async def test_every_answer_reports_what_is_left() -> None:
    """The policy stays, the units go down, and the time is that until there is one more."""
    app = limited(ok)
    assert (await ask(app)).headers == {"x-own": "1", "ratelimit-policy": POLICY, "ratelimit": '"per-minute";r=9;t=6'}
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=8;t=6'


@pytest.mark.parametrize("scope", [http("/health"), websocket("/health")], ids=["http", "websocket"])
async def test_exempt_requests_are_left_alone(scope: Scope) -> None:
    """No headers, nothing taken, and messages pass as they are."""
    start = {"type": "websocket.accept" if scope["type"] == "websocket" else "http.response.start", "status": 200}
    app = limited(sends(start, BODY), "1/minute", rules=[Rule("/health", None)])
    for _ in range(3):
        peer = await ask(app, scope)
        assert [id(message) for message in peer.sent] == [id(start), id(BODY)]


async def test_without_a_quota_nothing_is_limited() -> None:
    """A middleware with neither a quota nor rules passes everything on."""
    assert (await ask(limited(ok, None))).headers == {"x-own": "1"}


@pytest.mark.parametrize(
    ("options", "error", "quote"),
    [
        ({"quota": "10/lightyear"}, QuotaError, "'10/lightyear'"),
        ({"cost": 0}, ValueError, "not 0"),
        ({"cost": float("inf")}, ValueError, "not inf"),
        ({"name": ""}, ValueError, "not ''"),
        ({"store": "mysql://localhost"}, ValueError, "'mysql://localhost'"),
    ],
)
async def test_wrong_arguments_raise_at_start_up(options: Any, error: type[Exception], quote: str) -> None:
    """Wrong arguments are quoted when the middleware is built."""
    with pytest.raises(error, match=quote):
        RateLimitMiddleware(ok, **{"quota": "10/minute", **options})


# In a user's own tests


def test_the_test_client_of_starlette_is_limited() -> None:
    """Its address is a name, which serves as the key."""
    with TestClient(starlette(Mount("/", ok))) as client:
        assert [client.get("/").status_code for _ in range(11)] == [200] * 10 + [429]


def test_the_test_client_may_use_redis(redis_url: str) -> None:
    """Inside ``with`` its requests and the lifespan share an event loop, and connections are closed at its end."""
    app = Starlette(routes=[Mount("/", ok)], middleware=[Middleware(RateLimitMiddleware, "2/hour", store=redis_url)])
    for expected in ([200, 200, 429], [429]):
        with TestClient(app) as client:
            assert [client.get("/").status_code for _ in expected] == expected
