"""A middleware around an app that sets a root path by itself: with and without it, a path leads to the same route."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule
from asgi_ratelimit.keys import combine, path_param
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools import coverage
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio


def app_below(root_path: str = "/api") -> FastAPI:
    """An app with a login, which it serves with and without its root path."""
    app = FastAPI()
    app.root_path = root_path  # the newest FastAPI warns of the parameter
    app.add_api_route("/login/{account}", lambda account: account, methods=["GET"])
    app.add_api_route("/health", lambda: "fine", methods=["GET"])
    return app


def around(app: ASGIApp, *rules: Rule) -> RateLimitMiddleware:
    return RateLimitMiddleware(app, "1000/minute", rules=rules, store=MemoryStore(clock=SteppedClock()))


@pytest.mark.parametrize("root", ["", "/api"])
@pytest.mark.parametrize("rule", ["/login/{account}", "/api/login/{account}"])
@pytest.mark.parametrize("key", [None, path_param("account"), combine(path_param("account"))])
async def test_both_spellings_of_a_path_count(root: str, rule: str, key: object) -> None:
    """Whichever the rule names, nobody gets past it by the other one, and both are one bucket."""
    app = around(app_below(), Rule(rule, "2/minute", key=key))  # type: ignore[arg-type]
    statuses = [(await ask(app, http(path))).status for path in ("/api/login/ann", "/login/ann", f"{root}/login/ann")]
    assert statuses == [200, 200, 429]


async def test_both_spellings_are_exempt() -> None:
    """Of a rule without a quota."""
    app = around(app_below(), Rule("/health", None))
    for path in ("/health", "/api/health"):
        assert "ratelimit" not in (await ask(app, http(path))).headers


async def test_the_app_may_be_behind_other_middlewares() -> None:
    """The root path is found through them."""
    app = around(CORSMiddleware(app_below(), allow_origins=["*"]), Rule("/login/{account}", "1/minute"))
    statuses = [(await ask(app, http(path))).status for path in ("/api/login/ann", "/login/bob")]
    assert statuses == [200, 429]


async def test_the_app_s_own_root_path_replaces_the_server_s() -> None:
    """As the app does it, a path is matched below its own root path."""
    app = around(app_below(), Rule("/login/{account}", "1/minute"))
    statuses = [(await ask(app, http("/api/login/ann", root_path=root))).status for root in ("/other", "/api")]
    assert statuses == [200, 429]


async def test_another_path_that_begins_alike_is_another() -> None:
    """``/apiary/login`` is not below ``/api``."""
    app = around(app_below(), Rule("/login/{account}", "1/minute"))
    await ask(app, http("/login/ann"))
    assert (await ask(app, http("/apilogin/ann"))).status == 404


async def test_an_attribute_of_another_framework_is_no_root_path() -> None:
    """For Flask and Quart, ``root_path`` is the folder of the app: paths and scopes stay as they are."""

    class Quart:
        root_path = "/home/shop"

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["root_path"] == ""
            await ok(scope, receive, send)

    app = around(Quart(), Rule("/login", "1/minute"))
    assert [(await ask(app, http("/login"))).status for _ in range(2)] == [200, 429]


def test_coverage_knows_rules_with_a_root_path() -> None:
    """Each route is listed with the rules of both spellings."""
    app = around(app_below(), Rule("/api/login/{account}", "1/minute"), Rule("/api/health", None))
    covered = {each.path: each for each in coverage(app)}
    assert len(covered["/login/{account}"].limits) == 2
    assert covered["/health"].is_exempt
