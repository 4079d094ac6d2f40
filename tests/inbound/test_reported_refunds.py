"""What a refusal by a later limit gives back of the earlier ones: once, and as headers say."""

from __future__ import annotations

import pytest
from fastapi import Depends, FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from asgi_ratelimit import Limiter, RateLimit, RateLimited, RateLimitMiddleware, Rule, Store, limits
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("has_middleware", [True, False])
@pytest.mark.parametrize(
    ("quota", "left"), [("5/hour", "r=4;t=720"), ("5/hour fixed", "r=4;t=3600"), ("5/hour rolling", "r=4;t=3660")]
)
async def test_an_earlier_dependency_is_reported_as_it_is_after_the_refusal(
    store: Store, has_middleware: bool, quota: str, left: str
) -> None:
    """It was given back, so it has as much left as before, however often that happens."""
    app = FastAPI()
    limits = [RateLimit(each, name=each, store=store) for each in (quota, "1/hour")]

    @app.get("/", dependencies=[Depends(limit) for limit in limits])
    async def endpoint() -> None:
        pass

    if has_middleware:
        app.add_middleware(RateLimitMiddleware, store=store)
    peers = [await ask(app) for _ in range(3)]
    assert [peer.status for peer in peers] == [200, 429, 429]
    expected = [f'"per-hour";{left}, "1/hour per-hour";r=0;t=3600'] * 2
    assert [peer.headers["ratelimit"] for peer in peers[1:]] == expected


async def test_the_middleware_is_reported_as_it_is_after_the_refusal(store: Store) -> None:
    """Of a limit of a mount within it; and the next request that passes says the same."""
    inner = Mount("/in", ok, middleware=[Middleware(RateLimitMiddleware, quota="1/hour", store=store)])
    app = RateLimitMiddleware(Starlette(routes=[inner]), "10/hour", store=store)
    seen = [(await ask(app, http("/in/x"))).headers["ratelimit"].partition(",")[0] for _ in range(3)]
    assert seen == ['"per-hour";r=9;t=360'] * 3


async def test_what_a_refusal_gives_back_is_not_settled_again(store: Store) -> None:
    """Neither by the function of the rule, which sees the 429, nor by the endpoint's own handler."""

    async def answer(request: Request, error: RateLimited) -> Response:
        await limits(request).refund()
        return Response(status_code=429)

    app = FastAPI(exception_handlers={RateLimited: answer})
    app.add_api_route("/", lambda: "ok", dependencies=[Depends(RateLimit("2/hour", name="inner"))])
    outer = Rule("/", "10/hour", name="outer", settle=lambda status, headers: 0 if status == 429 else 1)
    app.add_middleware(RateLimitMiddleware, rules=[outer], store=store)
    assert [(await ask(app)).status for _ in range(6)] == [200] * 2 + [429] * 4
    assert (await Limiter("10/hour", name="outer", store=store).peek("192.0.2.1")).remaining == 8
