"""Answers to refused requests: problem details over HTTP, the same or a close for a handshake."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import lowlevel
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount
from starlette.types import Scope

from asgi_ratelimit import Decision, RateLimit, RateLimited, RateLimitMiddleware, RedisStore, Rule, TokenBucket, limits
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok, websocket
from tests.support.server import free_port

pytestmark = pytest.mark.anyio

TYPES = "https://iana.org/assignments/http-problem-types#"


async def must_not_run(scope: Scope, receive: Any, send: Any) -> None:
    raise AssertionError("a refused request reached the app")


async def used_up(quota: Any = "1/minute", **options: Any) -> RateLimitMiddleware:
    """A limit whose only unit has been taken, around an app that no request may reach any more."""
    app = limited(ok, quota, **options)
    await ask(app)
    app.app = must_not_run
    return app


async def test_a_refusal_reports_everything() -> None:
    """Status, problem details, when to come back, and the same headers as on other answers; nothing else is sent."""
    peer = await ask(await used_up())
    sent = [message["type"] for message in peer.sent]
    assert (peer.status, sent) == (429, ["http.response.start", "http.response.body"])
    assert peer.headers == {
        "content-type": "application/problem+json",
        "content-length": str(len(peer.body)),
        "cache-control": "no-store",
        "retry-after": "60",
        "ratelimit-policy": '"per-minute";q=1;w=60',
        "ratelimit": '"per-minute";r=0;t=60',
    }
    assert peer.problem == {
        "type": TYPES + "quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": ["per-minute"],
    }


async def test_the_body_of_a_refused_request_is_not_read() -> None:
    """Nothing of it is received, however much the client sends."""
    assert (await ask(await used_up(), http(method="POST"))).reads == 0


async def test_a_request_that_can_never_pass_has_no_time_to_wait() -> None:
    """A cost above the burst is refused for good: there is no time after which to retry."""
    peer = await ask(limited(must_not_run, "10/minute", cost=11))
    assert (peer.status, peer.headers["ratelimit"]) == (429, '"per-minute";r=10;t=0')
    assert "retry-after" not in peer.headers


WIDE = TokenBucket(3, 60, name="wide")
NARROW = TokenBucket(1, 60, name="narrow")
SLOW = TokenBucket(1, 90, name="slow")


@pytest.mark.parametrize(
    ("quotas", "violated", "retry_after"),
    [
        ([WIDE, NARROW], ["narrow"], 60),
        ([NARROW, WIDE], ["narrow"], 60),
        ([NARROW, WIDE, SLOW], ["narrow", "slow"], 90),
    ],
)
async def test_the_quotas_that_refuse_are_named(quotas: Any, violated: list[str], retry_after: int) -> None:
    """Only these, and all of them; the longest wait is in Retry-After, and headers report every quota."""
    peer = await ask(await used_up(quotas))
    assert peer.problem["violated-policies"] == violated
    assert peer.headers["retry-after"] == str(retry_after)
    assert peer.headers["ratelimit"].count(";r=") == len(quotas)


# An answer of one's own


def own_answer(connection: HTTPConnection, decision: Decision) -> Response:
    return JSONResponse({"wait": decision.retry_after, "path": connection.url.path}, 420, headers={"x-own": "1"})


async def own_answer_later(connection: HTTPConnection, decision: Decision) -> Response:
    await lowlevel.checkpoint()
    answer = own_answer(connection, decision)
    answer.raw_headers = iter(answer.raw_headers)  # type: ignore[assignment]  # ASGI allows it
    return answer


@pytest.mark.parametrize("on_limited", [own_answer, own_answer_later], ids=["sync", "async"])
async def test_an_answer_may_be_of_ones_own(on_limited: Any) -> None:
    """Status, headers and body are its own, with headers about the limits added."""
    peer = await ask(await used_up(on_limited=on_limited))
    assert (peer.status, peer.body) == (420, b'{"wait":60.0,"path":"/"}')
    assert peer.headers == {
        "content-type": "application/json",
        "content-length": "24",
        "x-own": "1",
        "retry-after": "60",
        "ratelimit-policy": '"per-minute";q=1;w=60',
        "ratelimit": '"per-minute";r=0;t=60',
    }


@pytest.mark.parametrize("own", [{"error": "slow down"}, ["slow", "down"]])
async def test_a_dict_or_list_is_json(own: Any) -> None:
    """With status 429, and the headers of any refusal."""
    peer = await ask(await used_up(on_limited=lambda connection, decision: own))
    assert (peer.status, json.loads(peer.body)) == (429, own)
    assert peer.headers["content-type"] == "application/json"
    assert (peer.headers["retry-after"], peer.headers["ratelimit"]) == ("60", '"per-minute";r=0;t=60')


@pytest.mark.parametrize(("path", "of"), [("/a", "a"), ("/b", "all"), ("/ab", "strict")])
async def test_each_rule_may_have_its_own_answer(path: str, of: str) -> None:
    """That of the rule which refuses, with the longest wait, and else the middleware's."""
    rules = [
        Rule("/a", "1/minute", on_limited=lambda connection, decision: {"of": "a"}),
        Rule("/b", "1/minute"),
        Rule("/ab", "1/minute", on_limited=lambda connection, decision: {"of": "mild"}, name="mild"),
        Rule("/ab", "1/hour", on_limited=lambda connection, decision: {"of": "strict"}, name="strict"),
    ]
    app = limited(ok, None, rules=rules, on_limited=lambda connection, decision: {"of": "all"})
    answers = [await ask(app, http(path)) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert json.loads(answers[1].body) == {"of": of}


@pytest.mark.parametrize("where", ["inside", "around", "around others"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("handled", [RateLimited, 429, HTTPException])
async def test_a_handler_of_the_app_answers_what_the_middleware_refuses(
    where: str, is_async: bool, handled: Any
) -> None:
    """One that the app has for such errors, so that all refusals look alike; headers are added."""

    def answer(request: Request, error: RateLimited) -> Response:
        assert error.decision is not None
        return JSONResponse({"path": request.url.path, "wait": error.decision.retry_after}, 420)

    async def answer_async(request: Request, error: RateLimited) -> Response:
        return answer(request, error)

    app = FastAPI(exception_handlers={handled: answer_async if is_async else answer})
    app.add_api_route("/none", lambda: "fine")
    store = MemoryStore(clock=SteppedClock())
    whole: Any = app
    if where == "inside":
        app.add_middleware(RateLimitMiddleware, quota="1/minute", store=store)
    else:
        inner = app if where == "around" else CORSMiddleware(app, allow_origins=["*"])
        whole = RateLimitMiddleware(inner, "1/minute", store=store)
    await ask(whole, http("/none"))
    peer = await ask(whole, http("/none"))
    assert (peer.status, peer.body) == (420, b'{"path":"/none","wait":60.0}')
    assert (peer.headers["retry-after"], peer.headers["ratelimit"]) == ("60", '"per-minute";r=0;t=60')


@pytest.mark.parametrize("own", [None, "3600"])
@pytest.mark.parametrize("handled", [RateLimited, 429, HTTPException])
async def test_a_handlers_answer_to_a_refusal_in_the_app_says_when_to_come_back(handled: Any, own: str | None) -> None:
    """As to one of the middleware, also where the handler leaves the header out; its own is the only one.

    So it does after a handshake was refused, too.
    """

    def answer(request: Request, error: RateLimited) -> Response:
        return JSONResponse({}, 420, headers={"Retry-After": own} if own else None)

    async def charge(request: Request) -> None:
        await limits(request).charge(99)

    app = FastAPI(exception_handlers={handled: answer})
    app.add_middleware(RateLimitMiddleware, quota="100/minute", store=MemoryStore(clock=SteppedClock()))
    app.add_api_route("/dependency", lambda: "fine", dependencies=[Depends(RateLimit("1/minute"))])
    app.add_api_route("/charge", charge)
    app.add_api_websocket_route("/socket", lambda websocket: None, dependencies=[Depends(RateLimit("1/hour", cost=2))])
    await ask(app, websocket("/socket"))
    await ask(app, http("/dependency"))
    for path, wait in (("/dependency", "60"), ("/charge", "2")):
        peer = await ask(app, http(path))
        assert (peer.status, peer.headers["retry-after"]) == (420, own or wait)
        assert "ratelimit" in peer.headers


@pytest.mark.parametrize("has_middleware", [False, True])
async def test_a_handler_passes_on_the_headers_of_a_refusal(has_middleware: bool) -> None:
    """With and without a middleware around it."""
    app = FastAPI(exception_handlers={RateLimited: lambda request, error: Response(headers=error.headers)})
    app.add_api_route("/", lambda: "fine", dependencies=[Depends(RateLimit("1/minute", name="all"))])
    if has_middleware:
        app.add_middleware(RateLimitMiddleware)
    await ask(app)
    headers = (await ask(app)).headers
    seen = [headers[name] for name in ("ratelimit-policy", "ratelimit", "retry-after")]
    assert seen == ['"per-minute";q=1;w=60', '"per-minute";r=0;t=60', "60"]


async def test_handlers_of_other_frameworks_are_theirs(caplog: pytest.LogCaptureFixture) -> None:
    """Those of Litestar make answers that are not of ASGI: the answer is the usual one, and nothing has failed."""
    framework = SimpleNamespace(exception_handlers={HTTPException: lambda request, error: "no answer"})
    for scope in (http(), http(app=framework)):
        app = limited(partial(ok), "1/day")
        app.app.exception_handlers = framework.exception_handlers  # type: ignore[attr-defined]
        assert [(await ask(app, {**scope})).status for _ in range(2)] == [200, 429]
    assert not caplog.records


async def test_on_limited_comes_before_a_handler() -> None:
    """What is said of this middleware is more specific."""
    app = FastAPI(exception_handlers={RateLimited: lambda request, error: PlainTextResponse("no", 418)})
    app.add_middleware(RateLimitMiddleware, quota="1/day", on_limited=lambda connection, decision: {"own": True})
    await ask(app)
    assert (await ask(app)).body == b'{"own":true}'


@pytest.mark.parametrize("has_middleware", [False, True])
async def test_each_dependency_may_have_its_own_answer(has_middleware: bool) -> None:
    """With and without a middleware around it."""
    limit = RateLimit("1/minute", name="own", on_limited=lambda connection, decision: {"wait": decision.retry_after})
    app = FastAPI(dependencies=[Depends(limit)])
    app.add_api_route("/", lambda: "fine")
    if has_middleware:
        app.add_middleware(RateLimitMiddleware, store=MemoryStore(clock=SteppedClock()))
    await ask(app)
    peer = await ask(app)
    assert peer.status == 429
    assert set(json.loads(peer.body)) == {"wait"}


RIGHT = {f"not {wrong!r}: JSONResponse(": wrong for wrong in ("slow down", 429, JSONResponse)}
FAILING = RIGHT | {"no template": LookupError("no template"), "gone.html": FileResponse("gone.html")}


@pytest.mark.parametrize(("shown", "wrong"), FAILING.items())
async def test_an_own_answer_that_fails_is_replaced(shown: str, wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The request is refused as usual, and one log line says why, once: also where it fails as it is sent."""

    def broken(connection: HTTPConnection, decision: Decision) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    app = await used_up(on_limited=broken)
    for _ in range(3):
        peer = await ask(app)
        assert (peer.status, peer.headers["content-type"]) == (429, "application/problem+json")
    (message,) = caplog.messages
    assert shown in message


async def test_an_own_answer_that_has_begun_is_not_replaced() -> None:
    """As where its background task fails: its error is the server's business."""
    app = await used_up(on_limited=lambda connection, decision: Response(background=BackgroundTask(int, "no number")))
    with pytest.raises(ValueError, match="no number"):
        await ask(app)


# Limits within limits


async def test_a_refusal_further_in_is_reported_together() -> None:
    """The problem names what refused as the headers do."""
    store = MemoryStore(clock=SteppedClock())
    inner = RateLimitMiddleware(ok, "1/minute", store=store, name="inner")
    app = RateLimitMiddleware(inner, "10/minute", store=store, name="outer")
    await ask(app)
    peer = await ask(app)
    assert peer.status == 429
    assert peer.problem["violated-policies"] == ["inner per-minute"]
    assert '"inner per-minute";r=0;t=60' in peer.headers["ratelimit"]


def fail(connection: HTTPConnection) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("options", [{"quota": fail, "on_error": "deny"}, {"deny": lambda connection: True}])
async def test_whoever_may_not_pass_further_in_costs_nothing_further_out(options: Any) -> None:
    """Because a quota function fails, or because of a list: the request is refused, though by no quota."""
    store = MemoryStore(clock=SteppedClock())
    inner = Mount("/in", ok, middleware=[Middleware(RateLimitMiddleware, store=store, **options)])
    app = RateLimitMiddleware(Starlette(routes=[inner, Mount("/", ok)]), "10/minute", store=store)
    assert (await ask(app, http("/in/x"))).status in (429, 503)
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'


# The store is out


async def test_without_the_store_nobody_may_be_let_in() -> None:
    """By on_error="deny" the answer is 503: it is no fault of the client, and no quota was exceeded.

    A function that answers who is over a limit is not asked then. A handshake that cannot be answered is closed by
    1013, and not as if a policy had been violated.
    """
    store = RedisStore(f"redis://127.0.0.1:{free_port()}", on_error="deny")
    rules = [Rule("/", "8/minute", on_limited=own_answer_later)]
    app = RateLimitMiddleware(ok, "9/minute", store=store, on_limited=own_answer, rules=rules)
    handshake = await ask(app, websocket())
    assert [(message["type"], message["code"]) for message in handshake.sent] == [("websocket.close", 1013)]
    peer = await ask(app)
    assert peer.status == 503
    assert peer.headers["retry-after"] == "1"
    assert peer.headers["content-type"] == "application/problem+json"
    assert peer.headers["content-length"] == str(len(peer.body))
    assert peer.problem == {
        "type": TYPES + "temporary-reduced-capacity",
        "title": "Request cannot be satisfied due to temporary server capacity constraints",
        "status": 503,
    }


# WebSocket


@pytest.mark.parametrize("extensions", [{}, {"extensions": {}}, {"extensions": None}], ids=["none", "empty", "null"])
async def test_a_refused_handshake_is_closed_elsewhere(extensions: dict[str, Any]) -> None:
    """A server without the extension gets a close, with the code for a policy that was violated."""
    peer = await ask(await used_up(), websocket(**extensions))
    assert [(message["type"], message["code"]) for message in peer.sent] == [("websocket.close", 1008)]
