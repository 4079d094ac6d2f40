"""``limits(request)``: what an endpoint knows of its own limits, charges more, and gives back."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from asgi_ratelimit import (
    Limiter,
    Limits,
    MemoryStore,
    RateLimit,
    RateLimited,
    RateLimitMiddleware,
    RedisStore,
    Rule,
    limits,
)
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import CLIENT, Peer, ask, http, limited, websocket
from tests.support.late_stores import SlowStore
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


def an_app(endpoint: Any, quota: Any = "10/minute", **options: Any) -> Starlette:
    """An app of one endpoint, which gets the limits of its request, on a clock that stands still."""

    async def answer(request: Request) -> Response:
        return PlainTextResponse(str(await endpoint(limits(request))))

    options = {"store": MemoryStore(clock=SteppedClock()), **options}
    return Starlette(routes=[Route("/", answer)], middleware=[Middleware(RateLimitMiddleware, quota, **options)])


def left(peer: Peer) -> list[int]:
    return [int(each.split(";r=")[1].partition(";")[0]) for each in peer.headers["ratelimit"].split(", ")]


async def test_more_may_be_charged_and_what_does_not_fit_is_refused() -> None:
    """By the same 429 as any other, and what was charged before stays charged; headers report the newest state."""
    app = an_app(lambda request: request.charge(5))
    peer = await ask(app)
    assert (peer.status, peer.headers["ratelimit"]) == (200, '"per-minute";r=4;t=6')
    peer = await ask(app)
    assert peer.status == 429
    assert peer.headers["content-type"] == "application/problem+json"
    assert peer.problem["violated-policies"] == ["per-minute"]
    assert left(peer) == [3]
    assert left(await ask(app)) == [2]


@pytest.mark.parametrize("kind", [MemoryStore, RedisStore])
async def test_who_comes_again_as_told_passes(kind: Any, redis_url: str) -> None:
    """``Retry-After`` counts all that the request is charged then, from the start."""
    clock = SteppedClock()
    store = kind(redis_url, clock=clock, timeout=30) if kind is RedisStore else kind(clock=clock)
    app = an_app(lambda request: request.charge(2), "3/minute; 500/hour", store=store)
    assert (await ask(app)).status == 200
    clock.advance(20)
    refused = await ask(app)
    assert (refused.status, refused.headers["retry-after"]) == (429, "60")
    clock.advance(60)
    assert (await ask(app)).status == 200
    await store.aclose()


async def test_who_comes_again_as_told_passes_all_limits() -> None:
    """Also those that the refused charge was not about."""
    clock = SteppedClock()
    options = {"rules": [Rule("/", "3/minute", name="uploads")], "store": MemoryStore(clock=clock)}
    app = an_app(lambda request: request.charge(2, name="uploads"), "2/hour", **options)
    assert (await ask(app)).status == 200
    clock.advance(20)
    assert (await ask(app)).headers["retry-after"] == "1780"


async def test_a_charge_is_all_or_nothing() -> None:
    """Over all rules that applied to the request, and none that did not."""
    rules = [Rule("/", "5/hour", name="hourly"), Rule("/other", "1/hour", name="other")]
    app = an_app(lambda request: request.charge(5), rules=rules)
    peer = await ask(app)
    assert (peer.status, peer.problem["violated-policies"]) == (429, ["per-hour"])
    assert left(peer) == [9, 4]


@pytest.mark.parametrize("name", ["uploads", "per-hour"])
async def test_a_charge_may_be_of_one_rule(name: str) -> None:
    """By the name of the rule, or by that of its quota."""
    app = an_app(lambda request: request.charge(3, name=name), rules=[Rule("/", "8/hour", name="uploads")])
    assert left(await ask(app)) == [9, 4]


@pytest.mark.parametrize("verb", ["charge", "refund", "settle"])
async def test_a_name_that_no_limit_has_is_logged(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """With the names that there are, because a mistyped name changes nothing, and nobody would see it."""
    rules = [Rule("/", "8/hour", name="uploads"), Rule("/other", "8/hour", name="other")]
    app = an_app(lambda request: getattr(request, verb)(3, name=f"{verb}-uplods"), rules=rules)
    assert left(await ask(app)) == [9, 7]
    assert f"{verb}(name='{verb}-uplods') changes nothing: no limit has this name" in caplog.text
    assert "'default', 'per-minute', 'uploads', 'per-hour'" in caplog.text


async def test_a_charge_need_not_be_required() -> None:
    """An endpoint may ask whether it fits, and do less; without its ``await``, it is told."""

    async def modest(request: Limits) -> str:
        forgotten = request.charge(100, required=False)
        with pytest.raises(TypeError, match=r"charge lacks its await, .*: if await limits\(request\).charge\(3\)"):
            bool(forgotten)
        forgotten.close()
        return "all" if await request.charge(100, required=False) else f"less: {await request.charge(2)}"

    peer = await ask(an_app(modest))
    assert (peer.status, peer.body) == (200, b"less: True")


@pytest.mark.parametrize(
    ("around", "own", "passed"), [("allow", "deny", 0), ("allow", "local", 5), ("deny", "allow", 7)]
)
async def test_an_outage_decides_as_the_limit_says_that_is_charged(
    around: Any, own: Any, passed: int, server: RedisServer
) -> None:
    """Not as another one of the request does, which was charged before it."""

    async def charges(request: Request, charged: Annotated[Limits, Depends(limits)]) -> Response:
        await asyncio.to_thread(server.stop)
        return PlainTextResponse(
            str([await charged.charge(1, name="own", required=False) for _ in range(7)].count(True))
        )

    app = FastAPI()
    app.add_api_route("/", charges, dependencies=[Depends(RateLimit("5/minute", name="own", on_error=own))])
    store = RedisStore(server.url, timeout=1.0)
    app.add_middleware(RateLimitMiddleware, "9/minute", on_error=around, store=store)
    assert (await ask(app)).body == str(passed).encode()
    await store.aclose()


async def test_an_endpoint_may_catch_a_refusal_that_the_app_handles() -> None:
    """Its own answer does not say when to come back, however often it was refused."""

    async def patient(request: Limits) -> None:
        for _ in range(1500):
            with suppress(RateLimited):
                await request.charge(100)

    app = an_app(patient)
    app.add_exception_handler(429, lambda request, error: Response(status_code=429))
    peer = await ask(app)
    assert (peer.status, peer.headers.get("retry-after")) == (200, None)


def a_framework(status: int, *, streams: bool = False) -> Any:
    """An app of a framework that makes an answer of its own of every error, as Django, Quart and strawberry do."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await limits(HTTPConnection(scope)).charge(100)
        except Exception:  # noqa: BLE001  # as these frameworks do
            await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"1")]})
            for _ in range(3 if streams else 1):
                await send({"type": "http.response.body", "body": b"own", "more_body": streams})
            await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.parametrize("status", [500, 200])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_refused_charge_is_the_answer_in_any_framework(status: int, streams: bool) -> None:
    """Whatever the framework makes of the error, nothing of it is sent."""
    peer = await ask(limited(a_framework(status, streams=streams)))
    assert [message["type"] for message in peer.sent] == ["http.response.start", "http.response.body"]
    assert (peer.status, peer.problem["status"]) == (429, 429)
    assert peer.headers["ratelimit"].startswith('"per-minute";r=9')
    assert "x-own" not in peer.headers


@pytest.mark.parametrize("way", ["group", "chained", "silent", "outage"])
async def test_a_refused_charge_is_the_answer_whatever_becomes_of_the_error(way: str, server: RedisServer) -> None:
    """In a group of errors, as the cause of another one, or nowhere, where the app sends nothing at all."""
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                if way == "outage":
                    await asyncio.to_thread(server.stop)
                group.create_task(limits(HTTPConnection(scope)).charge(10))
        except ExceptionGroup as error:
            if way != "silent":
                raise error if way == "group" else RuntimeError from error

    rule = Rule("/", "10/minute", settle=lambda status, headers: seen.append(status))
    store, status = RedisStore(server.url, timeout=20.0, on_error="deny"), 503 if way == "outage" else 429
    assert (await ask(RateLimitMiddleware(app, rules=[rule], store=store))).status == status
    assert seen == [status] * (way != "silent")
    await store.aclose()


@pytest.mark.parametrize(
    ("extensions", "sent"),
    [({}, "websocket.close"), ({"websocket.http.response": {}}, "websocket.http.response.start")],
)
async def test_a_refused_charge_refuses_a_handshake_in_any_framework(extensions: dict[str, Any], sent: str) -> None:
    """A framework that accepts it all the same accepts nothing."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(RateLimited):
            await limits(HTTPConnection(scope)).charge(100)
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "welcome"})

    peer = await ask(limited(app), websocket(extensions=extensions))
    assert peer.sent[0]["type"] == sent
    assert not {"websocket.accept", "websocket.send"} & {message["type"] for message in peer.sent}


async def test_an_answer_that_has_begun_is_not_replaced() -> None:
    """A charge that is refused later on ends nothing that the client has seen."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with suppress(RateLimited):
            await limits(HTTPConnection(scope)).charge(100)
        await send({"type": "http.response.body", "body": b"fine"})

    peer = await ask(limited(app))
    assert (peer.status, peer.body) == (200, b"fine")


@pytest.mark.parametrize("method", ["charge", "refund", "settle"])
@pytest.mark.parametrize("cost", ["login", -1], ids=["text", "negative"])
async def test_a_wrong_cost_shows_the_right_use(method: str, cost: Any) -> None:
    """Of the method that was called; nothing is charged or given back."""

    async def endpoint(request: Limits) -> None:
        quote = f"a finite number from 0 up, at most 2**53, not {cost!r}: await limits(request).{method}(3, name="
        with pytest.raises(ValueError, match=re.escape(quote)):
            await getattr(request, method)(cost)

    assert left(await ask(an_app(endpoint))) == [9]


async def test_all_may_be_given_back() -> None:
    """Both what the middleware charged and what the endpoint charged."""

    async def endpoint(request: Limits) -> None:
        await request.charge(5)
        await request.refund()

    app = an_app(endpoint)
    assert [left(await ask(app)) for _ in range(3)] == [[4]] * 3


async def test_a_part_may_be_given_back() -> None:
    """So many units of each charge, and no more than was charged; a second time is too late."""

    async def endpoint(request: Limits) -> None:
        await request.refund(2)
        await request.refund(1)

    app = an_app(endpoint, cost=3)
    assert [left(await ask(app)) for _ in range(3)] == [[7], [6], [5]]


async def test_a_charge_that_is_cancelled_is_given_back() -> None:
    """Its endpoint never learns whether it was charged."""
    store = SlowStore()

    async def answer(request: Request) -> Response:
        charging = asyncio.ensure_future(limits(request).charge(5))
        for _ in range(5):
            await asyncio.sleep(0)
        charging.cancel()
        await asyncio.wait([charging])
        await limits(request).refund()
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/", answer)], middleware=[Middleware(RateLimitMiddleware, "10/day", store=store)])
    await ask(app, http())
    assert (await Limiter("10/day", store=store).peek(CLIENT[0])).remaining == 10


async def test_what_an_endpoint_charges_is_not_settled_by_the_rule() -> None:
    """The function of the rule says what its own charge really cost."""
    seen = list[int]()
    rule = Rule("/", "10/minute", cost=2, settle=lambda status, headers: seen.append(status) or 1)
    app = an_app(lambda request: request.charge(3), None, rules=[rule])
    assert [left(await ask(app)) for _ in range(2)] == [[5], [1]]

    async def patient(request: Limits) -> None:
        with suppress(RateLimited):
            await request.charge(9)

    assert (await ask(an_app(patient, None, rules=[rule]))).status == 429
    assert seen == [200, 200, 429]  # which is sent although the endpoint has answered otherwise


@pytest.mark.parametrize(
    ("names", "left"), [(["default", "login"], [20, 20]), (["login"], [19, 20]), (["default", "default"], [20, 20])]
)
async def test_each_charge_of_a_take_is_settled_by_itself(names: list[str], left: list[int]) -> None:
    """What an endpoint gives back of one limit leaves the ``settle`` of another."""
    store = MemoryStore()

    async def answer(request: Request) -> Response:
        for name in names:
            await limits(request).refund(name=name)
        return PlainTextResponse("")

    login = Rule("/", "20/day", name="login", cost=4, settle=lambda status, headers: 0)
    limited = Middleware(RateLimitMiddleware, "20/day", store=store, rules=[login])
    await ask(Starlette(routes=[Route("/", answer)], middleware=[limited]), http())
    limiters = [Limiter("20/day", store=store, name=name) for name in ("default", "login")]
    assert [(await limiter.peek(CLIENT[0])).remaining for limiter in limiters] == left


async def test_decisions_are_there() -> None:
    """All of them, and the one with the least left."""

    async def endpoint(request: Limits) -> str:
        assert request.decision is not None
        return f"{len(request.decisions)} {request.decision.remaining} {request.decision.quota.name}"

    assert (await ask(an_app(endpoint, rules=[Rule("/", "5/hour")]))).body == b"1 4 per-hour"


async def test_an_exempt_request_is_charged_nothing() -> None:
    """An endpoint need not know which clients are exempt."""

    async def endpoint(request: Limits) -> str:
        await request.charge(1000)
        await request.refund()
        return f"{request.decision} {request.decisions}"

    peer = await ask(an_app(endpoint, rules=[Rule("/", None)]))
    assert (peer.status, peer.body) == (200, b"None ()")


def test_without_any_limits_it_says_so() -> None:
    """Otherwise a charge would be lost in silence."""
    with pytest.raises(ConfigurationError, match=r"app\.add_middleware\(RateLimitMiddleware"):
        limits(HTTPConnection(http()))


async def test_charges_reach_all_limits_of_a_request() -> None:
    """Those further in and further out, each in its own store: all of them or none."""
    inner = MemoryStore(clock=SteppedClock())

    async def answer(request: Request) -> Response:
        await limits(request).charge(2)
        return PlainTextResponse("ok")

    route = Route("/", answer, middleware=[Middleware(RateLimitMiddleware, "5/hour", store=inner, name="inner")])
    outer = MemoryStore(clock=SteppedClock())
    app = Starlette(routes=[route], middleware=[Middleware(RateLimitMiddleware, "10/minute", store=outer)])
    assert [left(await ask(app)) for _ in range(3)] == [[7, 2], [6, 1], [5, 0]]


# With FastAPI


def test_a_websocket_may_be_charged() -> None:
    """For each message, for example; beyond the limit the socket is closed with 1008."""

    async def endpoint(session: WebSocket) -> None:
        await session.accept()
        async for _ in session.iter_text():
            await limits(session).charge(3)
            await session.send_text("more")
            decisions.append(len(limits(session).decisions))

    app, decisions = FastAPI(), list[int]()
    app.websocket("/")(endpoint)
    app.add_middleware(RateLimitMiddleware, quota="500/hour")
    with TestClient(app).websocket_connect("/") as session:
        for _ in range(166):
            session.send_text("hello")
            assert session.receive_text() == "more"
        session.send_text("hello")
        with pytest.raises(WebSocketDisconnect) as closed:
            session.receive_text()
    assert closed.value.code == 1008
    assert decisions == [*range(2, 100), *[100] * 68]  # for each message another would be without an end
