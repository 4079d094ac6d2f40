"""A page behind a real client, and forms as a browser sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import Limiter, RateLimitMiddleware, Rule, Store
from asgi_ratelimit.counts import counts_of
from asgi_ratelimit.dashboard import dashboard

ORIGIN = "http://example"

# The header that a form of the page has, from a script.
BY_SCRIPT = {"x-limits-form": "yes"}

HELLO = PlainTextResponse("hello")


def is_admin(request: Request) -> bool:
    """Only requests with the right header."""
    return request.headers.get("x-role") == "admin"


def app_with_page(store: Store, *others: Rule, **options: Any) -> Starlette:
    """An app with a limit for all, one for logins, ``others``, and the page under ``/limits``."""
    page = dashboard(store, **{"allow": is_admin, **options})
    app = Starlette(routes=[Route("/", HELLO), Route("/login", HELLO), Mount("/limits", page)])
    rules = [Rule("/login", "2/minute", name="login"), Rule("/limits/{path:path}", None), *others]
    app.add_middleware(RateLimitMiddleware, quota="100/minute", rules=rules, store=store, name="api")
    return app


@asynccontextmanager
async def visitor(app: Any, role: str = "admin") -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app, who is an admin or not."""
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"x-role": role}) as client:
        yield client


async def take(store: Store, key: str = "ann", times: int = 1, name: str = "mails") -> None:
    """Take from a limiter of the store."""
    limiter = Limiter("3/minute", store=store, name=name)
    for _ in range(times):
        await limiter.rate_limit(key)


async def send_form(client: httpx.AsyncClient, action: str, **fields: str) -> httpx.Response:
    """Send a form as the page does."""
    return await client.post(f"/limits/{action}", data=fields, headers={**BY_SCRIPT, "origin": ORIGIN})


async def state_of(client: httpx.AsyncClient, store: Store) -> dict[str, Any]:
    """What the page shows once this process has published what it has counted."""
    await counts_of(store).end()
    with mock.patch("asgi_ratelimit.dashboard.page_state.REREAD_US", 0.0):
        answer = await client.get("/limits/state")
    state: dict[str, Any] = answer.json()
    return state
