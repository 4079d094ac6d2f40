"""An app behind slowapi, and its port: both answer every sequence of requests alike."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from slowapi import Limiter
from slowapi.middleware import SlowAPIMiddleware
from slowapi.util import get_remote_address

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule, Store, client_ip
from asgi_ratelimit.keys import combine
from asgi_ratelimit.testing import SteppedClock

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def path(connection: Any) -> str:
    return str(connection.url.path)


def with_routes(*paths: str, **decorators: Any) -> FastAPI:
    """An app with these routes; a decorator for one of them is given by the name of its endpoint."""
    app = FastAPI()
    for each in paths:

        async def endpoint(request: Request) -> str:
            return "fine"

        endpoint.__name__ = each.split("/")[1]
        decorate = decorators.get(endpoint.__name__, lambda function: function)
        app.add_api_route(each, decorate(endpoint))
    return app


PATHS = ["/home", "/items/{id}", "/login", "/search", "/export", "/upload", "/health"]


def shop_with_slowapi() -> FastAPI:
    """Defaults for each URL, limits in place of them and beside them, a shared one, and an exemption."""
    limiter = Limiter(key_func=get_remote_address, default_limits=["3/minute"])
    shared = limiter.shared_limit("2/minute", scope="transfers")
    app = with_routes(
        *PATHS,
        login=limiter.limit("2/minute"),
        search=limiter.limit("5/minute", override_defaults=False),
        export=shared,
        upload=shared,
        health=limiter.exempt,
    )
    app.state.limiter = limiter
    app.add_middleware(SlowAPIMiddleware)
    return app


def shop(store: Store) -> Any:
    """The same."""
    return RateLimitMiddleware(
        with_routes(*PATHS),
        "3/minute fixed",
        key=combine(client_ip(), path),
        rules=[
            Rule("/login", "2/minute fixed", only=True),
            Rule("/search", "5/minute fixed"),
            Rule("/export", "2/minute fixed", name="transfers", key=client_ip(), only=True),
            Rule("/upload", "2/minute fixed", name="transfers", key=client_ip(), only=True),
            Rule("/health", None),
        ],
        store=store,
    )


SHOP = ["/home*5 /items/1*2 /items/2*4", "/login*4 /home*1", "/search*5"]
SHOP += ["/export*1 /upload*2 /export*1 /home*4", "/health*7"]


async def statuses(app: Any, requests: str) -> list[int]:
    """The answers to ``/path*count``, one after the other."""
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    got = []
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        for part in requests.split():
            target, _, count = part.rpartition("*")
            got += [(await client.get(target)).status_code for _ in range(int(count))]
    return got


@pytest.mark.parametrize("requests", SHOP)
async def test_a_port_answers_like_the_original(requests: str) -> None:
    """Request by request."""
    expected = await statuses(shop_with_slowapi(), requests)
    assert await statuses(shop(MemoryStore(clock=SteppedClock())), requests) == expected
    assert set(expected) <= {200, 429}
