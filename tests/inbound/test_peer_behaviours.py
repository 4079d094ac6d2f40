"""What users of other limiters rely on, restated: each behaviour is from a peer's own tests."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from asgi_ratelimit import Limiter, MemoryStore, RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.keys import combine, header, path_param
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

USER = header("x-user")


async def page(request: Request) -> Response:
    return PlainTextResponse("a page")


ROUTES = [Route("/{path:path}", page, methods=["GET", "POST", "PUT"])]


def limited(*rules: Rule, quota: Any = None, routes: Any = ROUTES, **options: Any) -> Starlette:
    """An app with these limits, on a clock that stands still unless ``options`` bring a store of their own."""
    options = {"store": MemoryStore(clock=SteppedClock()), **options}
    return Starlette(routes=routes, middleware=[Middleware(RateLimitMiddleware, quota, rules=rules, **options)])


def client(app: ASGIApp, address: str = "192.0.2.1", **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 50_000), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://app", headers=headers)


async def statuses(app: ASGIApp, *calls: str, address: str = "192.0.2.1", **headers: str) -> list[int]:
    """What is answered to calls such as ``/a`` or ``POST /a``, one after the other."""
    async with client(app, address, **headers) as asking:
        requests = [call if " " in call else f"GET {call}" for call in calls]
        return [(await asking.request(*each.split())).status_code for each in requests]


# slowapi


async def test_a_limit_refuses_and_lets_through_again() -> None:
    """Five a minute pass, the sixth does not; when its Retry-After is over, the next one does, again and again."""
    clock = SteppedClock()
    app = limited(quota="5/minute fixed", store=MemoryStore(clock=clock))
    for _ in range(3):
        assert await statuses(app, *["/"] * 7) == [200] * 5 + [429] * 2
        async with client(app) as asking:
            clock.advance(int((await asking.get("/")).headers["retry-after"]))


async def test_several_limits_on_one_route() -> None:
    """By address and by user, for a second and for a minute: whichever is reached first refuses."""
    app = limited(
        Rule("/t1", "10/minute; 4/s", key=USER, name="by user"),
        Rule("/t1", "6/minute", key=client_ip(), name="by address"),
    )
    assert await statuses(app, *["/t1"] * 5, **{"x-user": "ann"}) == [200] * 4 + [429]
    assert await statuses(app, *["/t1"] * 3, **{"x-user": "bob"}) == [200] * 2 + [429]
    assert await statuses(app, "/t1", address="192.0.2.2", **{"x-user": "bob"}) == [200]


async def test_a_refusal_by_one_limit_costs_nothing_of_the_others() -> None:
    """A client that is refused for the second has not used up its minute."""
    clock = SteppedClock()
    app = limited(quota="3/minute fixed; 1/s fixed", store=MemoryStore(clock=clock))
    seen = []
    for _ in range(4):
        seen.append(await statuses(app, "/", "/", "/"))
        clock.advance(1)
    assert seen == [[200, 429, 429]] * 3 + [[429] * 3]


def fastapi_app(**options: Any) -> FastAPI:
    """Endpoints with and without a request, sync and async, and two routers deep."""
    app, outer, inner = FastAPI(), APIRouter(prefix="/outer"), APIRouter(prefix="/inner")

    @app.get("/sync")
    def in_a_thread() -> str:
        return "sync"

    @app.get("/items/{item}")
    async def of_item(item: int) -> int:
        return item

    @inner.get("/leaf")
    async def leaf() -> str:
        return "leaf"

    outer.include_router(inner)
    app.include_router(outer)
    app.add_middleware(RateLimitMiddleware, store=MemoryStore(clock=SteppedClock()), **options)
    return app


async def test_no_endpoint_needs_a_parameter_for_the_limit() -> None:
    """Neither a request nor a response, in sync and async ones, also deep inside of routers."""
    app = fastapi_app(quota="1/minute", rules=[Rule("/outer/inner/leaf", "2/minute", only=True)])
    assert await statuses(app, "/sync", "/sync", "/items/7") == [200, 429, 429]
    assert await statuses(app, *["/outer/inner/leaf"] * 3) == [200, 200, 429]


async def test_a_limit_by_route_or_by_url() -> None:
    """One bucket for all items, or one for each."""
    by_route = fastapi_app(rules=[Rule("/items/{item}", "1/minute")])
    by_url = fastapi_app(rules=[Rule("/items/{item}", "1/minute", key=combine(client_ip(), path_param("item")))])
    assert await statuses(by_route, "/items/1", "/items/2", "/items/1") == [200, 429, 429]
    assert await statuses(by_url, "/items/1", "/items/2", "/items/1") == [200, 200, 429]


# flask-limiter


async def test_a_limit_for_all_clients_together() -> None:
    """Beside that of each client: an application's own capacity."""
    everybody = Rule("/{rest:path}", "3/minute", key=lambda connection: "everybody", name="the app")
    app = limited(everybody, quota="2/minute")
    assert await statuses(app, "/", "/", "/") == [200, 200, 429]
    assert await statuses(app, "/", "/", address="192.0.2.2") == [200, 429]


async def test_two_limits_around_one_app() -> None:
    """Each does its own, a request passes both, and the answer reports both."""
    store = MemoryStore(clock=SteppedClock())
    rough = Middleware(RateLimitMiddleware, "3/minute", store=store, name="rough")
    fine = Middleware(RateLimitMiddleware, "2/s", store=store, name="fine")
    app = Starlette(routes=ROUTES, middleware=[rough, fine])
    async with client(app) as asking:
        answers = [await asking.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"per-minute";q=3;w=60, "per-second";q=2;w=1'


async def test_a_key_can_be_reset() -> None:
    """By a limiter of the same name and store: a customer who has called support may go on."""
    store = MemoryStore(clock=SteppedClock())
    app = limited(quota="1/minute", store=store, name="web")
    assert await statuses(app, "/", "/") == [200, 429]
    await Limiter("1/minute", store=store, name="web").reset("192.0.2.1")
    assert await statuses(app, "/", "/") == [200, 429]


# express-rate-limit


async def test_requests_at_once_are_counted_one_by_one() -> None:
    """Of a hundred that come together, exactly those pass that fit."""
    app = limited(quota="10/minute")
    async with client(app) as asking:
        answers = await asyncio.gather(*[asking.get("/") for _ in range(100)])
    assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 90
