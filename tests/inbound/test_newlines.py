"""Paths that end in newlines: Starlette's mounts misread them, and rules may not be evaded so."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule
from asgi_ratelimit.keys import path_param

pytestmark = pytest.mark.anyio


async def params(request: Request) -> JSONResponse:
    """The parameters of the path."""
    return JSONResponse({name: str(value) for name, value in request.path_params.items()})


async def statuses(routes: Sequence[BaseRoute], rule: Rule, paths: Sequence[str]) -> list[int]:
    """The statuses of requests to these paths, under one rule."""
    app = Starlette(routes=routes, middleware=[Middleware(RateLimitMiddleware, rules=[rule], store=MemoryStore())])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        return [(await client.get(path)).status_code for path in paths]


@pytest.mark.parametrize(
    ("routes", "rule", "path"),
    [
        ([Mount("/{lang}", routes=[Route("/account/login", params)])], "/{lang}/account/login", "/account/login"),
        ([Mount("/api", routes=[Route("/{version}/login", params)])], "/api/{version}/login", "/api/login"),
    ],
)
@pytest.mark.parametrize("end", ["%0A", "%0A%0A"])
async def test_no_endpoint_is_reached_past_its_rule(routes: list[BaseRoute], rule: str, path: str, end: str) -> None:
    """Without the middleware, the endpoint answers under this path, which the rule does not match."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(Starlette(routes=routes)), base_url="http://app"
    ) as bare:
        assert (await bare.get(f"{path}%0A")).status_code == httpx.codes.OK
    assert await statuses(routes, Rule(rule, "1/hour"), [path + end] * 3) == [404] * 3


@pytest.mark.parametrize("key", [None, path_param("name")], ids=["client", "parameter"])
async def test_a_newline_makes_no_other_path(key: path_param | None) -> None:
    """The endpoint reads the same parameter, with a newline and without."""
    rule = Rule("/files/{name:path}", "2/hour", key=key)
    answers = await statuses(
        [Route("/files/{name:path}", params)], rule, ["/files/a/b", "/files/a/b%0A", "/files/a/b%0A"]
    )
    assert answers == [200, 200, 429]
