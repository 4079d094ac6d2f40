"""Charging by outcome: what the answer says that a request has cost, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from anyio import CancelScope, lowlevel, sleep_forever
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, RateLimitMiddleware, RedisStore, Rule, limits
from asgi_ratelimit.decision import Settled, Settlement
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import START, Peer, ask, crash, http, limited, sends, websocket
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


def failures(status: int, headers: Headers) -> float:
    """Only what fails costs anything."""
    return 1 if status >= 400 else 0


def x_cost(status: int, headers: Headers) -> float | None:
    """The cost in the answer's header, if there is one."""
    return float(headers["x-cost"]) if "x-cost" in headers else None


def kilobytes(status: int, headers: Headers, sent: int) -> float:
    return sent / 1000


def answering(status: int = 200, headers: Any = (), body: bytes = b"ok") -> Any:
    """An app with this answer."""
    start = {"type": "http.response.start", "status": status, "headers": list(headers)}
    return sends(start, {"type": "http.response.body", "body": body})


class SettledApp:
    """An app with one rule that settles, on a clock that stands still."""

    def __init__(self, settle: Any, quota: str = "10/minute", **options: Any) -> None:
        self.store = MemoryStore(clock=SteppedClock())
        self._rule = Rule("/", quota, settle=settle, **options)

    def app(self, app: Any, **options: Any) -> RateLimitMiddleware:
        return RateLimitMiddleware(app, rules=[self._rule], store=self.store, **options)

    async def ask(self, app: Any, scope: Scope | None = None) -> Peer:
        return await ask(self.app(app), scope)

    async def left(self) -> float:
        """What is left, as reported to a request that costs nothing in the end."""
        seen = (await self.ask(answering(body=b""))).headers["ratelimit"]
        return int(seen.split(";r=")[1].partition(";")[0]) + 1


async def test_what_succeeds_costs_nothing() -> None:
    """Where only failures count: three wrong passwords are one too many, any number of right ones is not."""
    login = SettledApp(failures, "3/minute")
    assert [(await login.ask(answering(200))).status for _ in range(10)] == [200] * 10
    assert [(await login.ask(answering(401))).status for _ in range(4)] == [401, 401, 401, 429]
    assert (await login.ask(answering(200))).status == 429


@pytest.mark.parametrize(("cost", "left"), [(b"4", 6), (b"1", 9), (b"0", 10), (b"2.5", 7), (None, 9)])
async def test_an_answer_may_say_its_cost(cost: bytes | None, left: float) -> None:
    """In a header that the endpoint sets; without it the charge stands."""
    rule = SettledApp(x_cost)
    await rule.ask(answering(headers=[(b"x-cost", cost)] if cost else []))
    assert (await ask(rule.app(answering()))).headers["ratelimit"].split(";r=")[1].startswith(f"{int(left) - 1};")


async def test_more_than_was_there_is_owed() -> None:
    """The debit is repaid before this key passes again."""
    rule = SettledApp(x_cost)
    await rule.ask(answering(headers=[(b"x-cost", b"15")]))
    peer = await rule.ask(answering())
    assert (peer.status, peer.headers["retry-after"]) == (429, "36")


async def test_a_settle_function_may_be_asynchronous() -> None:
    """It is awaited."""

    async def later(status: int, headers: Headers) -> float:
        await lowlevel.checkpoint()
        return 0

    rule = SettledApp(later, "1/minute")
    assert [(await rule.ask(answering())).status for _ in range(3)] == [200] * 3


async def test_it_is_settled_before_the_answer_goes_out() -> None:
    """A client that sends its next request at once has what was given back."""
    rule, seen = SettledApp(failures, "1/minute"), []

    class Noting(Peer):
        async def send(self, message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.append(
                    (await ask(RateLimitMiddleware(answering(), "1/minute", store=rule.store, name="default /"))).status
                )
            await super().send(message)

    peer = Noting()
    await rule.app(answering())(http(), peer.receive, peer.send)
    assert seen == [200]


async def test_a_burst_of_guesses_is_charged_before_its_answers() -> None:
    """Of ten at once, where three may fail, three reach the app."""
    reached = []
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope)
        await release.wait()
        await answering(401)(scope, receive, send)

    login = SettledApp(failures, "3/minute")
    guesses = [asyncio.create_task(login.ask(slow)) for _ in range(10)]
    while not all(task.done() for task in guesses[3:]):
        await lowlevel.checkpoint()
    release.set()
    assert [(await task).status for task in guesses] == [401] * 3 + [429] * 7
    assert len(reached) == 3


# However it ends


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError


async def fails_midway(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"x" * 2000, "more_body": True})
    raise ZeroDivisionError


async def test_an_error_before_the_answer_is_a_500() -> None:
    """The server or the framework answers it, outside of the middleware."""
    rule, seen = SettledApp(lambda status, headers: seen.append((status, dict(headers))) or 0, "1/minute"), []
    await crash(rule.app(fails), http())
    assert seen == [(500, {})]
    assert (await rule.ask(answering())).status == 200


async def test_an_http_exception_has_its_status() -> None:
    """That of a plain app, which an app around it will answer."""
    seen: list[int] = []

    async def teapot(scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(418)

    await crash(SettledApp(lambda status, headers: seen.append(status)).app(teapot), http(), HTTPException)
    assert seen == [418]


async def test_an_error_midway_has_settled_by_then() -> None:
    """By the status that was sent, once."""
    seen: list[int] = []
    await crash(SettledApp(lambda status, headers: seen.append(status)).app(fails_midway), http())
    assert seen == [200]


async def test_bytes_that_were_sent_count_where_an_answer_breaks_off() -> None:
    """Two thousand of them are two units."""
    seen: list[tuple[int, int]] = []
    rule = SettledApp(lambda status, headers, sent: seen.append((status, sent)) or kilobytes(status, headers, sent))
    await crash(rule.app(fails_midway), http())
    assert seen == [(200, 2000)]
    assert await rule.left() == 8


async def test_bytes_are_counted_to_the_end() -> None:
    """Over all parts of the body, settled once with the last of them."""
    seen: list[tuple[int, int]] = []
    parts = [{"type": "http.response.body", "body": b"x" * n, "more_body": n < 3000} for n in (1000, 2000, 3000)]
    rule = SettledApp(lambda status, headers, sent: seen.append((status, sent)) or sent / 1000)
    await rule.ask(sends(START, *parts))
    assert seen == [(200, 6000)]


@pytest.mark.parametrize(("settle", "left"), [(failures, 9), (kilobytes, 9)])
async def test_a_client_that_goes_before_the_answer_has_paid(settle: Any, left: float) -> None:
    """A client that disconnects is still charged for its guess."""
    reached = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await asyncio.Event().wait()

    rule = SettledApp(settle)
    task = asyncio.create_task(rule.ask(slow))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await rule.left() == left


async def test_a_client_that_goes_midway_pays_for_what_was_sent() -> None:
    """Even though the request is being cancelled, the bytes are settled, and only once."""
    reached = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x" * 3000, "more_body": True})
        reached.set()
        await asyncio.Event().wait()

    rule = SettledApp(kilobytes)
    task = asyncio.create_task(rule.ask(slow))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await rule.left() == 7


async def test_a_cancelled_request_settles_on_redis(redis_url: str) -> None:
    """Where settling has to wait for an answer, it is not cancelled with the request."""
    reached = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x" * 3000, "more_body": True})
        reached.set()
        await asyncio.Event().wait()

    store = RedisStore(redis_url, timeout=20)
    rule = Rule("/", "10/day", settle=kilobytes)
    task = asyncio.create_task(ask(RateLimitMiddleware(slow, rules=[rule], store=store)))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    peer = await ask(RateLimitMiddleware(answering(), rules=[rule], store=store))
    assert peer.headers["ratelimit"].startswith('"per-day";r=6')
    await store.aclose()


async def test_a_scope_that_is_cancelled_settles_on_redis(redis_url: str) -> None:
    """Frameworks cancel the scope of a client that has disconnected: every await in it is cancelled again."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x" * 3000, "more_body": True})
        within.cancel()
        await sleep_forever()

    store = RedisStore(redis_url, timeout=20)
    rule = Rule("/", "10/day", settle=kilobytes)
    with CancelScope() as within:
        await ask(RateLimitMiddleware(slow, rules=[rule], store=store))
    peer = await ask(RateLimitMiddleware(answering(), rules=[rule], store=store))
    assert peer.headers["ratelimit"].startswith('"per-day";r=6')
    await store.aclose()


async def test_an_app_that_sends_nothing_has_been_charged() -> None:
    """Without an answer there is no outcome."""
    rule = SettledApp(failures)
    await rule.ask(sends())
    assert await rule.left() == 9


# What is settled


async def test_only_the_rule_that_settles_is_settled() -> None:
    """The others are charged as they were, in the same take."""
    app = limited(answering(), "20/minute", rules=[Rule("/", "10/minute", settle=failures, name="failures")])
    for left in (19, 18):
        seen = (await ask(app)).headers["ratelimit"]
        assert seen.startswith(f'"per-minute";r={left};')
        assert '"failures per-minute";r=9;' in seen


async def test_two_rules_settle_each_by_its_own() -> None:
    """One by the status, the other by the bytes, at the end of the answer."""
    rules = [Rule("/", "10/minute", settle=failures, name="a"), Rule("/", "20/minute", settle=kilobytes, name="b")]
    app = limited(answering(body=b"x" * 5000), None, rules=rules)
    await ask(app)
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6, "b per-minute";r=14;t=3'


@pytest.mark.parametrize("order", [1, -1])
async def test_rules_of_one_name_settle_by_the_one_that_can(order: int) -> None:
    """Whichever comes first: the request is charged once, and settled as the rule with ``settle`` says."""
    rules = [Rule("/", "10/minute", name="api"), Rule("/{rest:path}", "10/minute", name="api", settle=failures)]
    app = limited(answering(), None, rules=rules[::order])
    assert [(await ask(app)).headers["ratelimit"] for _ in range(2)] == ['"per-minute";r=9;t=6'] * 2


async def test_a_shadow_rule_settles_too() -> None:
    """A rule in shadow counts as it would if it were enforced."""
    seen = []
    shadow = Rule("/", "1/minute", settle=failures, shadow=True)
    app = limited(answering(), None, rules=[shadow], hooks=[seen.append])
    for _ in range(3):
        await ask(app)
    assert [event.decision.allowed for event in seen] == [True] * 3


async def test_a_refused_request_is_not_settled() -> None:
    """It was charged nothing, and its answer is not the app's."""
    seen: list[int] = []
    rule = SettledApp(lambda status, headers: seen.append(status), "1/minute")
    assert [(await rule.ask(answering())).status for _ in range(2)] == [200, 429]
    assert seen == [200]


async def test_a_handshake_settles_too() -> None:
    """By 101 if it was accepted, or by the status of its refusal."""
    seen: list[int] = []
    rule = SettledApp(lambda status, headers: seen.append(status))
    await rule.ask(sends({"type": "websocket.accept"}, {"type": "websocket.close"}), websocket())
    await rule.ask(sends({"type": "websocket.http.response.start", "status": 403, "headers": []}), websocket())
    assert seen == [101, 403]


@pytest.mark.parametrize("takes_bytes", [False, True])
async def test_a_handshake_that_the_app_closes_is_a_403(takes_bytes: bool) -> None:
    """Servers answer one with 403 that is closed before it was accepted; a close after that is no answer."""
    seen: list[int] = []
    count = seen.append
    rule = SettledApp(
        (lambda status, headers, sent: count(status)) if takes_bytes else lambda status, headers: count(status)
    )
    await rule.ask(sends({"type": "websocket.close", "code": 1008}), websocket())
    await rule.ask(sends({"type": "websocket.accept"}, {"type": "websocket.close"}), websocket())
    assert seen == [403, 101]


async def test_a_rejected_handshake_is_given_back() -> None:
    """By a function for which only those cost something that are accepted."""
    rule = SettledApp(lambda status, headers: 1 if status == 101 else 0, "1/minute")
    for _ in range(3):
        await rule.ask(sends({"type": "websocket.close"}), websocket())
    accepting = sends({"type": "websocket.accept"})
    assert [bool((await rule.ask(accepting, websocket())).starts) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("takes_bytes", [False, True])
async def test_a_status_of_1xx_is_no_answer(takes_bytes: bool) -> None:
    """It passes as it is; the answer after it has the headers, and counts."""
    seen: list[int] = []
    count = seen.append
    rule = SettledApp(
        (lambda status, headers, sent: count(status)) if takes_bytes else lambda status, headers: count(status)
    )
    hints: Message = {"type": "http.response.start", "status": 103, "headers": [(b"link", b"</style.css>")]}
    peer = await rule.ask(sends(hints, START, {"type": "http.response.body"}))
    assert peer.sent[0] == hints
    assert peer.starts[1]["headers"][0] == (b"ratelimit-policy", b'"per-minute";q=10;w=60')
    assert seen == [200]


async def test_settling_within_other_limits() -> None:
    """A limit of a route or a mount settles by itself."""

    async def login(request: Request) -> Response:
        return PlainTextResponse("", 401 if "wrong" in request.query_params else 200)

    store = MemoryStore(clock=SteppedClock())
    inner = Middleware(RateLimitMiddleware, rules=[Rule("/login", "1/minute", settle=failures)], store=store)
    app = limited(Starlette(routes=[Route("/login", login, middleware=[inner])]))
    scopes = [http("/login"), http("/login"), http("/login", query_string=b"wrong"), http("/login")]
    assert [(await ask(app, scope)).status for scope in scopes] == [200, 200, 401, 429]


# What goes wrong


@pytest.mark.parametrize(
    "settle",
    [
        lambda status, headers: 1 / 0,
        lambda status, headers: -1,
        lambda status, headers: "two",
        lambda status, headers: float("nan"),
        lambda status, headers, sent: {}[sent],
    ],
    ids=["raises", "negative", "text", "nan", "raises at the end"],
)
async def test_a_settle_function_that_fails_changes_nothing(settle: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is sent, the charge stands, and the name of the rule is logged once."""
    rule = SettledApp(settle, name="logins")
    app = rule.app(answering())
    answers = [await ask(app) for _ in range(3)]
    assert [(peer.status, peer.body) for peer in answers] == [(200, b"ok")] * 3
    assert answers[-1].headers["ratelimit"] == '"per-minute";r=7;t=6'
    assert len(caplog.messages) == 1
    assert "'logins'" in caplog.messages[0]


async def test_a_store_that_is_out_harms_no_answer() -> None:
    """What it cannot settle stays charged; the request goes on."""
    with RedisServer() as server:
        store = RedisStore(server.url, timeout=30)
        peer = Peer()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            server.stop()
            await answering()(scope, receive, send)

        rule = Rule("/", "10/minute", settle=failures)
        await RateLimitMiddleware(app, rules=[rule], store=store)(http(), peer.receive, peer.send)
        assert (peer.status, peer.body) == (200, b"ok")
        await store.aclose()


@pytest.mark.parametrize("is_native", [False, True], ids=["by a scope", "by its task"])
async def test_a_body_that_breaks_off_gives_back(redis_url: str, is_native: bool) -> None:
    """What the endpoint and a rule give back at its end is not lost, although the client has gone by then."""
    begun, store = asyncio.Event(), RedisStore(redis_url, timeout=30, on_error="deny")

    async def parts(request: Request) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            begun.set()
            await sleep_forever()
        finally:
            for name in ("outer", "inner"):
                await limits(request).refund(name=name)

    async def stream(request: Request) -> Response:
        return StreamingResponse(parts(request))

    settles = Rule("/", "5/hour", name="rule", settle=lambda status, headers, sent: 0)
    inner = RateLimitMiddleware(Starlette(routes=[Route("/", stream)]), "5/hour", name="inner", store=store)
    app = RateLimitMiddleware(inner, "5/hour", name="outer", rules=[settles], store=store)

    class Leaving(Peer):
        async def receive(self) -> Message:
            await (sleep_forever() if is_native else begun.wait())
            return {"type": "http.disconnect"}

    for _ in range(3):
        begun.clear()
        request = asyncio.ensure_future(app(http(), Leaving().receive, Peer().send))
        await begun.wait()
        if is_native:
            request.cancel()
        await asyncio.wait((request,))
    await store.aclose()
    again = RedisStore(redis_url, timeout=30, on_error="deny")
    limiters = [Limiter("5/hour", name=name, store=again) for name in ("outer", "inner", "rule")]
    assert [(await limiter.peek("192.0.2.1")).remaining for limiter in limiters] == [5, 5, 5]
    await again.aclose()


async def test_settling_is_once_even_if_it_is_slow() -> None:
    """The end of the answer does not settle again what its start is still settling."""
    settled: list[Settlement] = []

    class Slow(MemoryStore):
        async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
            settled.extend(settlements)
            await lowlevel.checkpoint()
            return await super().settle(settlements)

    await ask(RateLimitMiddleware(answering(), rules=[Rule("/", "10/minute", settle=failures)], store=Slow()))
    assert len(settled) == 1


@pytest.mark.parametrize("settle", [7, "failures", lambda: 0, lambda status: 0, lambda a, b, c, d: 0], ids=range(5))
def test_a_wrong_settle_function_raises_at_start_up(settle: Any) -> None:
    """The error quotes it, and shows a valid one."""
    with pytest.raises(ConfigurationError, match="settle is a function of the status and the headers"):
        limited(answering(), rules=[Rule("/", "1/s", settle=settle)])


async def test_mounted_apps_settle(redis_url: str) -> None:
    """Over Redis, and through the routing of a real framework."""

    async def login(request: Request) -> Response:
        return PlainTextResponse("", int(request.path_params["status"]))

    store = RedisStore(redis_url, timeout=20)
    rule = Rule("/auth/login/{status:int}", "2/hour", settle=failures)
    inner = Starlette(routes=[Route("/login/{status:int}", login)])
    app = Starlette(
        routes=[Mount("/auth", inner)], middleware=[Middleware(RateLimitMiddleware, rules=[rule], store=store)]
    )
    statuses = [(await ask(app, http(f"/auth/login/{n}"))).status for n in (200, 200, 200, 401, 200, 401, 200)]
    assert statuses == [200, 200, 200, 401, 200, 401, 429]
    await store.aclose()
