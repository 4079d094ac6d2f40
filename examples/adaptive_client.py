"""A server that says its limits, and a client that keeps to them: ``python -m examples.adaptive_client``.

The client knows no number. It asks for many pages at once, and is never refused. It needs httpx, which the
extra ``demo`` installs.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import AdaptiveTransport, MemoryStore, RateLimitMiddleware, Store, open_store


async def page(request: Request) -> PlainTextResponse:
    """A page."""
    return PlainTextResponse(f"page {request.path_params['number']}\n")


def limited_app(quota: str, store: Store | None = None) -> Starlette:
    """The server: its middleware reports the limit on every answer."""
    store = MemoryStore() if store is None else store
    middleware = Middleware(RateLimitMiddleware, quota=quota, key=lambda request: "everybody", store=store)
    return Starlette(routes=[Route("/pages/{number:int}", page)], middleware=[middleware])


def app() -> Starlette:
    """The server of this example: ``uvicorn --factory examples.adaptive_client:app``, with the store of the variable
    ``ASGI_RATELIMIT_STORE``, which is in memory by default."""
    return limited_app("40/s burst 40", open_store(os.environ.get("ASGI_RATELIMIT_STORE", "memory://")))


async def fetch(transport: AdaptiveTransport, count: int, url: str = "http://example") -> Counter[int]:
    """Ask for so many pages at the same time; returns how many answers had each status."""
    async with httpx.AsyncClient(transport=transport, base_url=url, timeout=None) as client:
        answers = await asyncio.gather(*[client.get(f"/pages/{number}") for number in range(count)])
    return Counter(answer.status_code for answer in answers)


async def main() -> None:
    """Fetch 100 pages from a server that allows 40 a second, and show what the transport has learned."""
    transport = AdaptiveTransport(httpx.ASGITransport(app()), retries=0)
    print(dict(await fetch(transport, 100)))
    for bucket in transport.state():
        print(bucket)


if __name__ == "__main__":
    asyncio.run(main())
