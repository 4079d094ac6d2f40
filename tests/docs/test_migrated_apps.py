"""Apps behind other limiters, and their ports: both answer every sequence of requests alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from asgi_ratelimit import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.docs.migrated.fastapi_limiter_app import news, news_with_fastapi_limiter
from tests.docs.migrated.slowapi_apps import office, office_with_slowapi, shop, shop_with_slowapi

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SHOP = [
    "/home*5 /items/1*2 /items/2*4",
    "/login*4 /home*1",
    "/search*5",
    "/export*1 /upload*2 /export*1 /home*4",
    "/health*7",
]
OFFICE = [
    "/items/1*2 /items/2*2",
    "/items/1*3 /other*3",
    "/other*2 /report*4",
    "/data*3 POST:/data*3",
    "/read*3 POST:/read*6",
    "/staff*3",
    "/staff?yes*6",
    "/tiers*3",
]
NEWS = ["/latest*4", "/archive*4 /latest*3", "/comments*3", "/comments?ann*3 /comments?bob*3"]

CASES = [
    *[pytest.param(shop_with_slowapi, shop, requests, id=f"shop {requests}") for requests in SHOP],
    *[pytest.param(office_with_slowapi, office, requests, id=f"office {requests}") for requests in OFFICE],
    *[pytest.param(news_with_fastapi_limiter, news, requests, id=f"news {requests}") for requests in NEWS],
]


def parsed(requests: str) -> list[tuple[str, str, str]]:
    """Method, path and user of each request."""
    parsed = []
    for part in requests.split():
        target, _, count = part.rpartition("*")
        method, colon, rest = target.rpartition(":")
        path, _, user = rest.partition("?")
        parsed += [(method if colon else "GET", path, user)] * int(count)
    return parsed


async def statuses(app: Any, requests: str) -> list[int]:
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        return [
            (await client.request(method, path, headers={"x-user": user, "x-staff": user})).status_code
            for method, path, user in parsed(requests)
        ]


@pytest.mark.parametrize(("theirs", "ours", "requests"), CASES)
async def test_a_port_answers_like_the_original(
    theirs: Callable[[], Any], ours: Callable[[MemoryStore], Any], requests: str
) -> None:
    """Request by request."""
    expected = await statuses(theirs(), requests)
    assert await statuses(ours(MemoryStore(clock=SteppedClock())), requests) == expected
    assert set(expected) <= {200, 429}
