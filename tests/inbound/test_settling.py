"""Charging by outcome: what the answer says that a request has cost, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio import lowlevel, sleep_forever
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import Limiter, MemoryStore, RateLimitMiddleware, RedisStore, Rule, limits
from asgi_ratelimit.stores import Settled, Settlement
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import START, Peer, ask, crash, http, sends, websocket
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


async def test_who_goes_before_the_answer_begins_pays_in_full() -> None:
    """Whatever the app makes of it: disconnecting evades no limit."""

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "http.request":
            pass
        await answering(500, body=b"")(scope, receive, send)

    rule = SettledApp(kilobytes, "3/minute")
    assert [(await rule.ask(reads)).status for _ in range(4)] == [500, 500, 500, 429]


async def test_headers_that_can_be_read_once_only_arrive() -> None:
    """A server reads them, as ASGI allows, and so does a settle function."""
    start = {"type": "http.response.start", "status": 200, "headers": (each for each in [(b"x-cost", b"2")])}
    peer = await SettledApp(x_cost, "9/minute").ask(sends(start, {"type": "http.response.body", "body": b""}))
    assert (peer.headers["x-cost"], peer.headers["ratelimit"][:17]) == ("2", '"per-minute";r=8;')


# However it ends


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError


async def fails_midway(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"x" * 2000, "more_body": True})
    raise ZeroDivisionError


PART: Message = {"type": "http.response.body", "body": b"x" * 3000, "more_body": True}


async def test_an_error_before_the_answer_is_a_500() -> None:
    """The server or the framework answers it, outside of the middleware."""
    rule, seen = SettledApp(lambda status, headers: seen.append((status, dict(headers))) or 0, "1/minute"), []
    await crash(rule.app(fails), http())
    assert seen == [(500, {})]
    assert (await rule.ask(answering())).status == 200


async def test_bytes_that_were_sent_count_where_an_answer_breaks_off() -> None:
    """Two thousand of them are two units."""
    seen: list[tuple[int, int]] = []
    rule = SettledApp(lambda status, headers, sent: seen.append((status, sent)) or kilobytes(status, headers, sent))
    await crash(rule.app(fails_midway), http())
    assert seen == [(200, 2000)]
    assert await rule.left() == 8


@pytest.mark.parametrize(
    ("settle", "sent", "left"), [(failures, (), 9), (kilobytes, (), 9), (kilobytes, (START, PART), 7)]
)
async def test_a_client_that_goes_pays_for_what_was_sent(settle: Any, sent: Any, left: float) -> None:
    """Though the request is being cancelled, bytes are settled, and only once; without an answer, the charge stands."""
    reached = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await sends(*sent)(scope, receive, send)
        reached.set()
        await asyncio.Event().wait()

    rule = SettledApp(settle)
    task = asyncio.create_task(rule.ask(slow))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await rule.left() == left


async def test_an_app_that_sends_nothing_has_been_charged() -> None:
    """Without an answer there is no outcome."""
    rule = SettledApp(failures)
    await rule.ask(sends())
    assert await rule.left() == 9


# What is settled


async def test_a_refused_request_is_not_settled() -> None:
    """It was charged nothing, and its answer is not the app's."""
    seen: list[int] = []
    rule = SettledApp(lambda status, headers: seen.append(status), "1/minute")
    assert [(await rule.ask(answering())).status for _ in range(2)] == [200, 429]
    assert seen == [200]


def noting(takes_bytes: bool) -> tuple[SettledApp, list[int]]:
    """An app, and the statuses by which it is settled."""
    seen: list[int] = []
    at_end, at_start = lambda status, headers, sent: seen.append(status), lambda status, headers: seen.append(status)
    return SettledApp(at_end if takes_bytes else at_start), seen


@pytest.mark.parametrize("takes_bytes", [False, True])
async def test_a_handshake_that_the_app_closes_is_a_403(takes_bytes: bool) -> None:
    """Servers answer one with 403 that is closed before it was accepted; a close after that is no answer."""
    rule, seen = noting(takes_bytes)
    await rule.ask(sends({"type": "websocket.close", "code": 1008}), websocket())
    await rule.ask(sends({"type": "websocket.accept"}, {"type": "websocket.close"}), websocket())
    assert seen == [403, 101]


@pytest.mark.parametrize("takes_bytes", [False, True])
async def test_a_status_of_1xx_is_no_answer(takes_bytes: bool) -> None:
    """It passes as it is; the answer after it has the headers, and counts."""
    rule, seen = noting(takes_bytes)
    hints: Message = {"type": "http.response.start", "status": 103, "headers": [(b"link", b"</style.css>")]}
    peer = await rule.ask(sends(hints, START, {"type": "http.response.body"}))
    assert peer.sent[0] == hints
    assert peer.starts[1]["headers"][0] == (b"ratelimit-policy", b'"per-minute";q=10;w=60')
    assert seen == [200]


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


async def test_a_store_that_is_out_harms_no_answer(server: RedisServer) -> None:
    """What it cannot settle stays charged; the request goes on."""
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


async def test_a_request_that_is_cancelled_as_it_settles_is_settled(redis_url: str) -> None:
    """What is on its way to the server is carried out there, whoever has gone meanwhile."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")

    def settle(status: int, headers: Headers) -> float:
        task.cancel()
        return 0

    rule = Rule("/", "5/hour", settle=settle, name="cancelled")
    task = asyncio.create_task(ask(RateLimitMiddleware(answering(), rules=[rule], store=store)))
    await asyncio.wait((task,))
    assert task.cancelled()
    assert (await Limiter("5/hour", name="cancelled", store=store).peek("192.0.2.1")).remaining == 5
    await store.aclose()


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


# Files that the server sends by itself


SENDFILE = {"http.response.pathsend": {}, "http.response.zerocopysend": {}}
FILE = {"type": "http.response.zerocopysend", "file": -1}


async def sent_by(app: Any, scope: Scope | None = None) -> list[int]:
    """The bytes that a settle function sees of the answer of an app."""
    seen: list[int] = []
    await ask(SettledApp(lambda status, headers, sent: seen.append(sent)).app(app), scope)
    return seen


@pytest.mark.parametrize("extensions", [{}, SENDFILE], ids=["bodies", "files"])
async def test_a_file_of_starlette_costs_the_same_on_every_server(tmp_path: Path, extensions: Any) -> None:
    """Whether or not the server offers to read it by itself."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)

    async def download(request: Request) -> Response:
        return FileResponse(path)

    scope = http(extensions=extensions, asgi={"version": "3.0", "spec_version": "2.4"})
    assert await sent_by(Starlette(routes=[Route("/", download)]), scope) == [5000]


async def test_an_answer_to_head_has_no_bytes() -> None:
    """Servers send none there, whatever the app says."""
    for body in {**FILE, "count": 5000}, {"type": "http.response.body", "body": b"x" * 5000}:
        assert await sent_by(sends(START, body), http(method="HEAD")) == [0]
