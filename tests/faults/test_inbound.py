"""An app whose Redis is out: no request is answered with a 500, whatever the rules do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from asgi_ratelimit import Penalty, RateLimitMiddleware, RedisStore, Rule, limits
from asgi_ratelimit.keys import header
from tests.support.redis_server import RedisServer
from tests.support.trial import PATIENT

pytestmark = pytest.mark.anyio

RULES = [
    Rule("/settled", "50/hour", name="settled", settle=lambda status, headers: 2 if status == 200 else 0),
    Rule("/punished", "5/hour", name="punished", penalty=Penalty("1 hour", after=2)),
    Rule("/shadow", "5/hour", name="shadow", shadow=True),
    Rule("/partly", "50/hour", name="partly"),
    Rule("/allowed", "5/hour", name="allowed", only=True, on_error="allow"),
]
PATHS = ["/plain", "/settled", "/punished", "/shadow", "/partly", "/allowed"]


async def endpoint(request: Request) -> Response:
    return PlainTextResponse("ok")


async def partly(request: Request) -> Response:
    """Refund what was charged, whether the store is out or not."""
    decided = limits(request)
    await asyncio.sleep(0.01)
    await decided.refund()
    return PlainTextResponse("ok")


@asynccontextmanager
async def client_of(server: RedisServer, deadline: float = PATIENT) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app on that Redis; errors of the app are raised."""
    routes = [Route(path, partly if path == "/partly" else endpoint) for path in PATHS]
    app = Starlette(routes=routes)
    store = RedisStore(server.url, timeout=deadline)
    app.add_middleware(RateLimitMiddleware, quota="1000/hour", key=header("x-client"), rules=RULES, store=store)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        yield client
    await store.aclose()


async def statuses(client: httpx.AsyncClient, *paths: str, times: int = 10) -> Counter[int]:
    """The statuses of ``times`` requests for each path, all at once."""
    headers = {"x-client": "somebody"}
    answers = await asyncio.gather(*[client.get(path, headers=headers) for path in paths for _ in range(times)])
    return Counter(answer.status_code for answer in answers)


@pytest.mark.parametrize("fault", ["frozen", "gone"])
async def test_no_request_ends_in_an_error(server: RedisServer, fault: str) -> None:
    """Before an outage, at its start, during it, and after it."""
    async with client_of(server, deadline=0.5) as client:
        assert set(await statuses(client, *PATHS)) == {200, 429}
        going = asyncio.create_task(statuses(client, *PATHS))
        await asyncio.sleep(0.001)
        server.pause() if fault == "frozen" else server.stop()
        assert set(await going) <= {200, 429}
        for _ in range(3):
            assert set(await statuses(client, *PATHS)) <= {200, 429}
        server.resume() if fault == "frozen" else server.start()
        for _ in range(5):
            assert set(await statuses(client, *PATHS, times=3)) <= {200, 429}
            await asyncio.sleep(0.05)
