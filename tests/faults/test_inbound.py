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
    Rule("/denied", "500/hour", name="denied", only=True, on_error="deny"),
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
    routes = [Route(path, partly if path == "/partly" else endpoint) for path in [*PATHS, "/denied"]]
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


async def test_each_rule_has_its_own_on_error(server: RedisServer) -> None:
    """One allows all, one denies all, and the others limit in this process; only ``deny`` answers with 503."""
    async with client_of(server) as client:
        assert set(await statuses(client, "/denied")) == {200}
        server.stop()
        await statuses(client, "/plain", times=1)
        assert await statuses(client, "/allowed", times=20) == {200: 20}
        assert await statuses(client, "/denied", times=20) == {503: 20}
        assert await statuses(client, "/plain", times=20) == {200: 20}
        refusal = await client.get("/denied", headers={"x-client": "somebody"})
        assert refusal.headers["retry-after"] == "1"
        assert refusal.json()["type"].endswith("#temporary-reduced-capacity")
        server.start()
        await settled_on(client, "/denied", 200)


async def settled_on(client: httpx.AsyncClient, path: str, status: int) -> None:
    """Send requests until one is answered with this status."""
    for _ in range(500):
        if (await client.get(path, headers={"x-client": "another"})).status_code == status:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{path} is not answered with {status}")
