"""What users of other limiters rely on once a request is let in, restated: each is from a peer's own tests."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket as Socket

from asgi_ratelimit import (
    Decision,
    Limiter,
    MemoryStore,
    Penalty,
    RateLimit,
    RateLimitMiddleware,
    Rule,
    client_ip,
    limits,
)
from asgi_ratelimit.keys import combine, header
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http

pytestmark = pytest.mark.anyio


def a_store() -> MemoryStore:
    return MemoryStore(clock=SteppedClock())


def client(app: Any, address: str = "192.0.2.1", **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 50_000), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://app", headers=headers)


async def statuses(app: Any, *paths: str, **headers: str) -> list[int]:
    async with client(app, **headers) as asking:
        return [(await asking.get(path)).status_code for path in paths]


def failures(status: int, headers: Headers) -> float:
    return 1 if status >= 400 else 0


def successes(status: int, headers: Headers) -> float:
    return 1 if status < 400 else 0


async def answers(request: Request) -> Response:
    """With the status in its path; ``/0`` breaks."""
    status = int(request.path_params["status"])
    if not status:
        raise ZeroDivisionError
    return PlainTextResponse("", status)


def answering(*rules: Rule, **options: Any) -> Starlette:
    options = {"rules": rules, "store": a_store(), **options}
    routes = [Route("/{status:int}", answers), Route("/also/{status:int}", answers)]
    return Starlette(routes=routes, middleware=[Middleware(RateLimitMiddleware, **options)])


# flask-limiter, express-rate-limit: charging by the answer


async def test_only_failures_count() -> None:
    """Any number of successes pass; the third failure is the last, an error of the app among them."""
    app = answering(Rule("/{status:int}", "3/minute", settle=failures))
    assert await statuses(app, *["/200"] * 9, "/400", "/200", "/0", "/404", "/200") == [200] * 9 + [
        400,
        200,
        500,
        404,
        429,
    ]


async def test_only_successes_count() -> None:
    """A client that gets it wrong may try again."""
    app = answering(Rule("/{status:int}", "2/minute", settle=successes))
    assert await statuses(app, *["/422"] * 5, "/200", "/422", "/200", "/422") == [422] * 5 + [200, 422, 200, 429]


async def test_charging_by_the_answer_is_of_one_rule() -> None:
    """Others that apply to the same request count it as ever."""
    app = answering(Rule("/{status:int}", "2/minute", settle=failures), quota="4/minute")
    assert await statuses(app, *["/200"] * 5) == [200] * 4 + [429]


async def test_charging_by_the_answer_on_a_limit_that_routes_share() -> None:
    """Failures of both add up."""
    rules = [Rule(path, "2/minute", settle=failures, name="x") for path in ("/{status:int}", "/also/{status:int}")]
    paths = ["/200", "/also/200", "/400", "/also/400", "/also/200"]
    assert await statuses(answering(*rules), *paths) == [200, 200, 400, 400, 429]


async def test_charging_by_the_answer_with_a_cost() -> None:
    """The cost is held until the answer is there, which then says what a failure costs."""
    app = answering(
        Rule("/{status:int}", "10/minute", cost=5, settle=lambda status, headers: 3 if status >= 400 else 0)
    )
    assert await statuses(app, *["/200"] * 3, "/400", "/400", "/200") == [200] * 3 + [400, 400, 429]


async def test_what_is_given_back_after_its_window_is_not_given_to_the_next() -> None:
    """A slow request that succeeds in a later window makes that one no larger."""
    clock = SteppedClock()
    store = MemoryStore(clock=clock)
    answer = asyncio.Event()

    async def slow(request: Request) -> Response:
        await answer.wait()
        return PlainTextResponse()

    rule = Rule("/{rest:path}", "2/minute fixed", settle=failures, name="x")
    routes = [Route("/slow", slow), Route("/{status:int}", answers)]
    app = Starlette(routes=routes, middleware=[Middleware(RateLimitMiddleware, rules=[rule], store=store)])
    waiting = asyncio.create_task(statuses(app, "/slow"))
    await asyncio.sleep(0)
    clock.advance(60)
    assert await statuses(app, "/400") == [400]
    answer.set()
    assert await waiting == [200]
    assert await statuses(app, "/400", "/400") == [400, 429]


async def test_a_client_that_hangs_up_early_has_paid() -> None:
    """A client that disconnects before the answer is charged for its guess."""
    reached = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    app = RateLimitMiddleware(slow, rules=[Rule("/", "1/minute", settle=failures)], store=a_store())
    peer = Peer()
    request = asyncio.create_task(app(http(), peer.receive, peer.send))
    await reached.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (await ask(app)).status == 429


async def test_a_client_that_fails_again_and_again_is_blocked() -> None:
    """A limit on failures, and a penalty for who goes on at it."""
    clock = SteppedClock()
    rule = Rule("/{status:int}", "2/minute", settle=failures, penalty=Penalty("1 hour"), name="x")
    app = answering(rule, store=MemoryStore(clock=clock))
    assert await statuses(app, *["/200"] * 5, "/401", "/401", "/401") == [200] * 5 + [401, 401, 429]
    clock.advance(1800)
    assert await statuses(app, "/200") == [429]
    clock.advance(1800)
    assert await statuses(app, "/200") == [200]


# express-rate-limit: the state of the limit inside the app


async def test_the_endpoint_knows_what_is_left() -> None:
    """How many units, of what, and when there are more; of two limits the one that binds."""

    async def left(request: Request) -> Response:
        decision = limits(request).decision
        assert decision is not None
        return JSONResponse([decision.quota.name, decision.quota.limit, decision.remaining, decision.reset_after])

    inner = Middleware(RateLimitMiddleware, "3/minute", store=a_store(), name="inner")
    outer = Middleware(RateLimitMiddleware, "100/hour", store=a_store(), name="outer")
    app = Starlette(routes=[Route("/", left)], middleware=[outer, inner])
    async with client(app) as asking:
        seen = [(await asking.get("/")).json() for _ in range(2)]
    assert seen == [["per-minute", 3, 2, 20.0], ["per-minute", 3, 1, 40.0]]


async def test_the_endpoint_may_give_back_or_take_more() -> None:
    """A cost that only it knows, race-free: what does not fit any more is refused from there."""

    async def pages(request: Request) -> Response:
        count = int(request.query_params["pages"])
        await (limits(request).refund() if count == 0 else limits(request).charge(count - 1))
        return PlainTextResponse()

    store = a_store()
    app = Starlette(routes=[Route("/", pages)], middleware=[Middleware(RateLimitMiddleware, "10/minute", store=store)])
    paths = [f"/?pages={count}" for count in (0, 0, 4, 7, 5, 0)]
    assert await statuses(app, *paths) == [200, 200, 200, 429, 200, 429]


# fastapi-limiter, slowapi: limits next to the routes of FastAPI


def staff_pass(connection: HTTPConnection) -> str | None:
    return None if connection.headers.get("x-staff") == "yes" else "1/minute"


SEVERAL = [Depends(RateLimit("1/s", name="short")), Depends(RateLimit("2/minute", name="long"))]
BY_ACCOUNT = RateLimit("1/minute", key=combine(client_ip(), header("x-account")), name="by account")
SHARED = Depends(RateLimit("2/minute", name="shared"))
COSTLY = RateLimit("4/minute", cost=lambda connection: float(connection.query_params["cost"]), name="costly")


def an_app() -> FastAPI:
    """Routes with limits of all kinds, two of them deep inside of routers."""
    app, outer, inner = FastAPI(), APIRouter(prefix="/outer", dependencies=[SHARED]), APIRouter(prefix="/inner")
    app.add_middleware(RateLimitMiddleware, store=a_store())

    @app.get("/several", dependencies=SEVERAL)
    async def several() -> str:
        return "several"

    @app.get("/account", dependencies=[Depends(BY_ACCOUNT)])
    def account() -> str:
        return "account"

    @app.get("/skip", dependencies=[Depends(RateLimit(staff_pass, name="skip"))])
    async def skip() -> str:
        return "skip"

    @app.get("/costly", dependencies=[Depends(COSTLY)])
    async def costly(cost: int) -> int:
        return cost

    @app.get("/left")
    async def left(decision: Annotated[Decision, Depends(RateLimit("3/minute", name="left"))]) -> int:
        return decision.remaining

    @inner.get("/one")
    @inner.get("/two")
    async def leaf() -> str:
        return "leaf"

    outer.include_router(inner)
    app.include_router(outer)
    return app


async def test_several_dependencies_on_one_route() -> None:
    """All of them hold, whichever comes first, and a refusal by one costs nothing of the other."""
    clock = SteppedClock()
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=MemoryStore(clock=clock))
    app.add_api_route("/several", lambda: "several", dependencies=SEVERAL)
    seen = []
    for _ in range(3):
        seen.append(await statuses(app, "/several", "/several"))
        clock.advance(1)
    assert seen == [[200, 429], [200, 429], [429, 429]]


async def test_a_dependency_with_a_key_of_its_own() -> None:
    """An account in addition to the address, on an endpoint that is not async."""
    app = an_app()
    assert await statuses(app, "/account", "/account", **{"x-account": "a"}) == [200, 429]
    assert await statuses(app, "/account", **{"x-account": "b"}) == [200]


async def test_a_dependency_that_skips() -> None:
    """Those whom a function of the connection lets pass."""
    app = an_app()
    assert await statuses(app, *["/skip"] * 3, **{"x-staff": "yes"}) == [200] * 3
    assert await statuses(app, "/skip", "/skip") == [200, 429]


async def test_a_dependency_with_a_cost() -> None:
    """A function of the connection, for which the endpoint needs no request."""
    paths = [f"/costly?cost={cost}" for cost in (3, 2, 1, 1)]
    assert await statuses(an_app(), *paths) == [200, 429, 200, 429]


async def test_a_dependency_of_a_router_holds_for_what_is_nested_in_it() -> None:
    """However deep: the complaint that is heard most often of limits in this place."""
    paths = ["/outer/inner/one", "/outer/inner/two", "/outer/inner/one", "/outer/inner/two"]
    assert await statuses(an_app(), *paths) == [200, 200, 429, 429]


async def test_a_dependency_s_decision_is_there_to_be_used() -> None:
    """As the value of a parameter."""
    async with client(an_app()) as asking:
        assert [(await asking.get("/left")).json() for _ in range(3)] == [2, 1, 0]


# fastapi-limiter: WebSockets


def test_messages_are_limited_inside_an_endpoint() -> None:
    """By what they are about: one bucket for each client and topic, and the socket stays open."""
    topics = Limiter("1 per 5 seconds", store=a_store(), name="topics")
    app = FastAPI()

    @app.websocket("/ws")
    async def chat(session: WebSocket) -> None:
        await session.accept()
        async for topic in session.iter_text():
            decision = await topics.rate_limit(topic)
            await session.send_text("hello" if decision.allowed else "slow down")

    with TestClient(app) as testing, testing.websocket_connect("/ws") as session:
        said = []
        for topic in ("a", "a", "b", "b", "a"):
            session.send_text(topic)
            said.append(session.receive_text())
    assert said == ["hello", "slow down", "hello", "slow down", "slow down"]


def test_handshakes_are_limited_by_a_dependency() -> None:
    """The second one gets the 429 that a request would get."""
    app = FastAPI()

    @app.websocket("/ws", dependencies=[Depends(RateLimit("1/minute", store=a_store(), name="handshakes"))])
    async def hello(session: WebSocket) -> None:
        await session.accept()
        await session.send_text("hello")
        await session.close()

    with TestClient(app) as testing:
        with testing.websocket_connect("/ws") as session:
            assert session.receive_text() == "hello"
        with pytest.raises(WebSocketDenialResponse) as refused, testing.websocket_connect("/ws"):
            pass
    assert refused.value.status_code == 429


def test_messages_are_limited_without_a_word_in_the_endpoint() -> None:
    """A flood is read no faster than the rule says; here by a clock on which waiting takes no time."""
    clock = SteppedClock()
    came: list[float] = []

    async def notes(session: Socket) -> None:
        await session.accept()
        for _ in range(4):
            await session.receive_text()
            came.append(clock.now)

    class Flood:
        """A peer that sends as fast as it may."""

        def __init__(self) -> None:
            self.connected = False

        async def receive(self) -> Any:
            if not self.connected:
                self.connected = True
                return {"type": "websocket.connect"}
            return {"type": "websocket.receive", "text": "x"}

        async def send(self, message: Any) -> None:
            assert message["type"] == "websocket.accept"

    rule = Rule("/ws", None, messages="1 per 5 seconds")
    app = Starlette(
        routes=[WebSocketRoute("/ws", notes)],
        middleware=[Middleware(RateLimitMiddleware, rules=[rule], store=MemoryStore(clock=clock))],
    )
    peer, began = Flood(), clock.now
    scope = {**http("/ws", type="websocket"), "subprotocols": []}
    clock.run(app(scope, peer.receive, peer.send))
    assert [moment - began for moment in came] == [0.0, 5.0, 10.0, 15.0]
