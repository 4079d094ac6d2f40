"""Checks at start-up: a mistake that makes a limit impossible is an error, and shows what is right.

One that turns a limit off, or lets clients evade it, is logged once, with a link to the remedy. Each check has a row.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.security import APIKeyHeader
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from asgi_ratelimit import ConfigurationError, Limiter, PacedTransport, RateLimit, RateLimitMiddleware, Rule, logs, pace
from asgi_ratelimit.inbound.routes import number_of_workers
from asgi_ratelimit.keys import client_ip, combine, cookie, first_of, header, user
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.tools.coverage import routes_of, rules_of
from tests.support.asgi import Peer, ask, hello, http
from tests.support.names import named
from tests.support.store_elsewhere import StoreElsewhere

pytestmark = pytest.mark.anyio


ROUTES = [
    Route("/", hello),
    Route("/users/{id:int}", hello, methods=["GET", "POST"]),
    WebSocketRoute("/ws", hello),
    Mount("/v1", routes=[Route("/x/{name}", hello)]),
]


async def warned(caplog: pytest.LogCaptureFixture, *middleware: Middleware, routes: Any = ROUTES) -> list[str]:
    """The sections of the docs that the warnings of an app's first requests link to."""
    app = Starlette(routes=routes, middleware=middleware)
    for _ in range(2):
        await ask(app, http())
    return re.findall(r"\(docs/warnings\.md#([\w-]+)\)", "\n".join(caplog.messages))


def limiting(quota: Any = "10/minute", **options: Any) -> Middleware:
    return Middleware(RateLimitMiddleware, quota, **options)


def rule(path: str, quota: Any = "1/s", **options: Any) -> Middleware:
    return limiting(rules=[Rule(path, quota, **options)])


async def test_a_correct_app_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Neither by rules for some methods, nor by exemptions, nor by rules for mounts."""
    rules = [Rule("/users/{id}", "1/s", methods=["POST"]), Rule("/", None), Rule("/v1/{rest:path}", "2/s")]
    assert await warned(caplog, limiting(rules=rules)) == []


# Workers


@pytest.fixture
def single_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that nothing says is one of several."""
    monkeypatch.setattr(sys, "argv", ["uvicorn", "app:app"])
    for name in ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS", "GUNICORN_CMD_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("single_worker")
async def test_a_memory_store_with_several_workers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would let the whole quota pass; a store that is one of memory is one, too."""

    class Own(MemoryStore):
        pass

    assert await warned(caplog, limiting()) == []
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert await warned(caplog, limiting(store=StoreElsewhere(MemoryStore()))) == []
    assert await warned(caplog, limiting(store=Own())) == ["a-memory-store-with-several-workers"]


@pytest.mark.usefixtures("single_worker")
@pytest.mark.parametrize(
    ("arguments", "environment", "number"),
    [
        ("uvicorn app:app --workers 4", {}, 4),
        ("gunicorn -w 4 app:app", {}, 4),
        ("x -w many", {}, 1),
        ("", {"WEB_CONCURRENCY": "4"}, 4),
        ("", {"UVICORN_WORKERS": "4"}, 4),
        ("", {"GUNICORN_CMD_ARGS": "--bind=0.0.0.0 --workers=4"}, 4),
        ("", {"WEB_CONCURRENCY": "many"}, 1),
    ],
)
def test_the_number_of_workers(
    arguments: str, environment: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line in all spellings, and in the variables that servers and containers read."""
    monkeypatch.setattr(sys, "argv", arguments.split())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert number_of_workers() == number


# The log of a server


# Nothing


@pytest.mark.parametrize("middleware", [limiting(None), limiting(None, rules=[Rule("/", None)])])
async def test_a_middleware_that_limits_nothing(middleware: Middleware, caplog: pytest.LogCaptureFixture) -> None:
    """It has no quota, and no rule that charges anything, which is logged before any request."""
    peer = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await Starlette(middleware=[middleware])({"type": "lifespan"}, peer.receive, peer.send)
    assert (
        "no route has a RateLimit, and RateLimitMiddleware no quota or rules: nothing is limited: quota=" in caplog.text
    )
    assert "a-middleware-that-limits-nothing" in caplog.text


async def test_a_middleware_without_limits_that_is_of_use(caplog: pytest.LogCaptureFixture) -> None:
    """Dependencies use its store and its headers, another middleware may limit, and lists need no quota."""
    app = FastAPI(dependencies=[Depends(RateLimit("5/minute", name="all"))])
    app.get("/")(hello)
    assert await warned(caplog, limiting(None), routes=[Mount("/", app)]) == []
    assert await warned(caplog, limiting(None), routes=[Route("/", hello, middleware=[limiting()])]) == []
    assert await warned(caplog, limiting(name="a"), limiting(None, name="b")) == []
    assert await warned(caplog, limiting(None, deny=lambda request: False)) == []


# Scripts in a browser


@pytest.mark.parametrize("is_inside", [True, False])
async def test_a_cors_middleware(is_inside: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Inside of the limit, it does not see refusals, which scripts can then not read."""
    both = [limiting(), Middleware(CORSMiddleware, allow_origins=["*"])]
    expected = ["a-cors-middleware-inside-of-the-limit"] * is_inside
    assert await warned(caplog, *(both if is_inside else reversed(both))) == expected


# Limits that begin anew in each call


@pytest.fixture
def no_more_than_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few are made in this process until now, and so few are too many."""
    monkeypatch.setattr(logs, "MANY", 10)
    logs.made.clear()


@pytest.mark.usefixtures("no_more_than_ten")
async def test_a_dependency_that_is_made_in_each_request(caplog: pytest.LogCaptureFixture) -> None:
    """FastAPI calls the function, and not the limit that it returns; one that many routes have is no mistake."""

    def limit():  # type: ignore[no-untyped-def]  # with the type, the mistake is told of at start
        return RateLimit("1/minute")

    app = FastAPI()
    app.get("/right", dependencies=[Depends(RateLimit("1/minute"))])(lambda: "fine")
    app.get("/wrong", dependencies=[Depends(limit)])(lambda: "fine")
    for path, requests, status, messages in (("/right", 20, 429, 0), ("/wrong", 9, 200, 0), ("/wrong", 5, 200, 1)):
        assert [(await ask(app, http(path))).status for _ in range(requests)][-1] == status
        assert len(caplog.messages) == messages
    assert (
        'limit = RateLimit("5/minute"), and dependencies=[Depends(limit)] (docs/warnings.md#a-dependency' in caplog.text
    )


@pytest.mark.usefixtures("no_more_than_ten")
@pytest.mark.parametrize(
    ("make", "is_told"),
    [
        (lambda store: Limiter("1/minute").rate_limit("ann"), True),
        (lambda store: Limiter("1/minute", store=MemoryStore()).rate_limit("ann"), True),
        (lambda store: PacedTransport(httpx.HTTPTransport(), quota="1/s"), True),
        (lambda store: pace("1/minute")(hello), True),
        (lambda store: Limiter("1/minute", store=store).peek("ann"), False),
    ],
    ids=["limiter", "store", "transport", "pace", "shared"],
)
async def test_a_limiter_that_is_made_in_each_call(
    make: Callable[[Store], Any], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a new memory each time, and limits nothing; those that share a store do."""
    store = MemoryStore()
    for number in range(12):
        made = make(store)
        assert not hasattr(made, "__await__") or await made
        assert len(caplog.messages) == int(is_told and number >= 10)
    assert (
        'limiter = Limiter("10/s") (docs/warnings.md#a-limiter-that-is-made-in-each-call)' in caplog.text
    ) is is_told


# Rules


@pytest.mark.parametrize(
    ("path", "options", "nearest"),
    [
        ("/user/{id}", {}, "GET POST /users/{id:int}"),
        ("/users/{id}/", {}, "GET POST /users/{id:int}"),
        ("/x/{name}", {}, "GET /v1/x/{name}"),
        ("/users/{id:uuid}", {}, "GET POST /users/{id:int}"),
        ("/users/{id}", {"methods": ["PURGE"]}, "GET POST /users/{id:int}"),
        ("/ws", {"methods": ["GET"]}, "/ws"),
    ],
)
async def test_a_rule_that_matches_no_route(
    path: str, options: Any, nearest: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its path is misspelt or lacks the mount, or the route has not its method; the nearest route is shown."""
    assert await warned(caplog, rule(path, **options)) == ["a-rule-that-never-applies"]
    hint = f" The nearest route is {nearest!r}." if nearest else ""
    assert f"matches no route of the app: are its path and methods complete?{hint} (" in caplog.text
    assert repr(path) in caplog.text


async def test_a_misspelt_rule_of_an_app_with_a_catch_all(caplog: pytest.LogCaptureFixture) -> None:
    """A page for everything else takes any mistake; a rule for a page of its own is none."""
    routes = [*ROUTES, Route("/login", hello), Route("/api/things/{id}", hello), Route("/{page:path}", hello)]
    rules = [Rule("/{rest:path}", "1/s"), Rule("/about", "1/s"), Rule("/login", "1/s")]
    assert await warned(caplog, limiting(rules=rules), routes=routes) == []
    proxy = [*routes[:-1], Route("/{rest:path}", hello, methods=["GET", "POST"])]
    assert await warned(caplog, limiting(rules=[Rule("/logins", "1/s")]), routes=proxy) == []
    assert await warned(caplog, rule("/Login"), routes=routes) == ["a-rule-that-never-applies"]
    assert "The nearest route is 'GET /login'." in caplog.text
    caplog.clear()
    assert await warned(caplog, rule("/things/{id}"), routes=routes) == ["a-rule-that-never-applies"]


async def test_messages_of_a_rule_with_methods(caplog: pytest.LogCaptureFixture) -> None:
    """A WebSocket has no method, so they have no limit, although requests for the same path have one."""
    assert await warned(caplog, rule("/{rest:path}", methods=["GET"], messages="20/s")) == ["a-rule-that-never-applies"]
    assert "limits no messages, because a WebSocket has no method: leave out methods" in caplog.text


async def test_a_rule_for_a_mount_without_what_is_below(caplog: pytest.LogCaptureFixture) -> None:
    """The mount is shown, although its path is a good deal longer."""
    assert await warned(caplog, rule("/static"), routes=[Mount("/static", hello)]) == ["a-rule-that-never-applies"]
    assert "The nearest route is '/static/{path:path}'." in caplog.text


@pytest.mark.parametrize("others", [[], ["/users/{slug}"], ["/users/{slug}", "/users/{id:int}"]], ids=len)
async def test_a_rule_for_fewer_texts_than_its_route(others: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """FastAPI converts "+1" and "1.0" as well, unless another route has the rule's own convertor."""
    routes = [Route(path, hello) for path in others] or [Mount("/users", StaticFiles(directory="."))]
    is_told = others != ["/users/{slug}", "/users/{id:int}"]
    middleware = rule("/users/{id:int}", methods=["GET" if others else "POST"])
    assert await warned(caplog, middleware, routes=routes) == ["a-rule-that-never-applies"] * is_told
    assert "as /users/+1: write its path, '/users/{slug}'" in caplog.text or others != ["/users/{slug}"]


UNUSUAL = [Mount("/{id}", routes=[Route("/{id}", hello)]), Route("/users/{id", hello), Route("/users/{id}/", hello)]


@pytest.mark.parametrize("route", UNUSUAL)
async def test_a_route_with_an_unusual_path(route: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Starlette takes two parameters of one name, and a stray brace: so the app starts, and its rules apply.

    A slash at the end of a route is one at which a rule without it applies.
    """
    assert await warned(caplog, rule("/users/{name}"), routes=[route]) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Rule("/users/{id}", None), Rule("/users/{id:int}", "1/s"), True),
        (Rule("/users/{id}", "2/s", only=True), Rule("/users/{id}", "1/s", methods=["POST"]), True),
        (Rule("/users/{id}", "2/s"), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", None, methods=["GET"]), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", None, methods=["GET", "POST"]), Rule("/users/{id}", "1/s", methods=["POST"]), True),
        (Rule("/users/{id}", "2/s", only=True, shadow=True), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", "1/s"), Rule("/{rest:path}", None), True),
        (Rule("/users/{id}", "1/s"), Rule("/users/{id}", "9/s", only=True), True),
        (Rule("/users/{id}", "1/s", shadow=True), Rule("/users/{id}", "9/s", only=True), False),
        (Rule("/users/{id}", "1/s", only=True), Rule("/users/{id}", None), True),
    ],
)
async def test_a_rule_behind_a_final_one(
    first: Rule, second: Rule, expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It never applies if another rule matches all of its requests and decides alone, wherever that one stands."""
    sections = await warned(caplog, limiting(rules=[first, second]))
    assert set(sections) == set(["a-rule-that-never-applies"] * expected)


# All of them


EVADED = "a-key-that-clients-leave-out"
ONLY, BESIDE = "default /", "default"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"rules": [Rule("/", "9/s", key=header("x-api-key"), only=True)]}, ONLY),
        ({"rules": [Rule("/", "9/s", key=first_of(cookie("session"), client_ip()), only=True)]}, ONLY),
        ({"rules": [Rule("/", "9/s", key=combine(header("x-api-key"), user()), only=True)]}, ONLY),
        ({"rules": [Rule("/", "9/s", key=user(), only=True)]}, ONLY),
        ({"rules": [Rule("/", "9/s", key=combine(client_ip(), user()), only=True)]}, None),
        ({"rules": [Rule("/", "9/s", key=lambda connection: None, only=True)]}, None),
        ({"rules": [Rule("/", "9/s", key=header("x-api-key"))]}, None),
        ({"key": header("x-api-key")}, BESIDE),
        ({"key": first_of(header("x-api-key"), client_ip())}, BESIDE),
        ({"key": cookie("a"), "rules": [Rule("/", "9/s", key=header("b"))]}, BESIDE),
        ({"key": header("a"), "rules": [Rule("/", "9/s", key=client_ip())]}, BESIDE),
        ({"key": header("a"), "rules": [Rule("/{any:path}", "9/s", key=client_ip())]}, None),
        ({"key": header("a"), "rules": [Rule("/{any:path}", "9/s", key=client_ip(), shadow=True)]}, BESIDE),
        ({"key": user()}, None),
        ({"key": lambda connection: "a"}, None),
    ],
    ids=range(15),
)
async def test_a_key_that_clients_leave_out(
    options: dict[str, Any], name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves out the keys of all limits, or has new ones for each request, has no limit at all."""
    assert (EVADED in await warned(caplog, limiting(**options))) is (name is not None)
    assert f", as of {name!r}, or leave it out if they can: add one by address" in caplog.text or name is None


async def test_a_key_that_a_security_scheme_returns(caplog: pytest.LogCaptureFixture) -> None:
    """It has checked nothing."""
    limit = RateLimit("9/s", key=Depends(APIKeyHeader(name="x-key")), name="by key")
    app = FastAPI(dependencies=[Depends(limit)], middleware=[Middleware(RateLimitMiddleware)])
    app.add_api_route("/", hello)
    await ask(app, http())
    assert EVADED in caplog.text


@pytest.mark.parametrize(
    ("key", "around", "is_evaded"),
    [(header("x-api-key"), [], True), (client_ip(), [], False), (header("x-api-key"), [limiting()], False)],
)
async def test_a_key_that_clients_leave_out_of_a_dependency(
    key: Any, around: list[Middleware], is_evaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A route without a middleware has the limits of its dependencies alone."""
    router = APIRouter(dependencies=[Depends(RateLimit("9/s", key=key, name="by key"))])
    router.add_api_route("/x", hello)

    class Allowed:
        rules = "all"  # of the program, not limits

        def __call__(self) -> None: ...

    app = FastAPI(dependencies=[Depends(Allowed())])
    app.add_api_route("/", hello, dependencies=[Depends(RateLimit("9/s", name="by address"))])
    inner = FastAPI(middleware=around)  # which has not been called yet
    inner.include_router(router)
    app.mount("/v1", inner)
    await ask(app, http())
    assert (EVADED in caplog.text, len(rules_of(routes_of(app))[1])) == (is_evaded, is_evaded)


# Arguments


def wsgi(environ: Any, start_response: Any) -> Any:
    """An app of WSGI."""


@pytest.mark.parametrize("wrong", ["5/minute", None, wsgi], ids=named)
def test_the_app_comes_first(wrong: Any) -> None:
    """What is in its place is quoted, and the right ways are shown, also for WSGI."""
    mend = f"the first argument is an app of ASGI, not {wrong!r}: RateLimitMiddleware(app, "
    with pytest.raises(ConfigurationError, match=re.escape(mend)):
        RateLimitMiddleware(wrong)
