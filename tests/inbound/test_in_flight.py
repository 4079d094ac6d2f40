"""Requests in flight: each holds its place until its answer has ended, however it ends."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import InFlight, Limiter, Overrides, RateLimit, RateLimitMiddleware, RedisStore, Rule, limits
from asgi_ratelimit.dashboard.summaries import summary
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.leases import held_by_name
from asgi_ratelimit.outbound import AdaptiveTransport, PacedTransport, pace
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import BODY, CLIENT, START, Peer, ask, http, ok, websocket
from tests.support.overriding import until, until_async
from tests.support.redis_server import RedisServer
from tests.support.visitors import Visitor

pytestmark = pytest.mark.anyio

PART: Message = {"type": "http.response.body", "body": b"part", "more_body": True}


class Export:
    """An app whose answers are as long as the test says, and which counts those that are under way."""

    def __init__(self) -> None:
        self.under_way = self.most = self.entered = 0
        self.ends = asyncio.Event()
        self.background = asyncio.Event()
        self.problem: BaseException | None = None

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.entered += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await send({"type": "websocket.accept"} if scope["type"] == "websocket" else START)
            if scope["type"] == "http":
                await send(PART)
            await self.ends.wait()
            if self.problem is not None:
                raise self.problem
        finally:
            self.under_way -= 1
        await send({"type": "websocket.close"} if scope["type"] == "websocket" else BODY)
        if scope["path"] == "/background":
            await self.background.wait()


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store of its own."""
    if request.param == "memory":
        yield MemoryStore()
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    store = RedisStore(server.url, prefix=request.node.name)
    yield store
    await store.aclose()


def export_of(app: Any) -> Export:
    """The app within one middleware, or two."""
    return app if isinstance(app, Export) else export_of(app.app)


async def entered(app: Any, scope: Scope) -> Peer:
    """The answer to a request, which comes again while it is refused: over Redis, nobody waits for a release."""
    export = export_of(app)
    before, peer = export.entered, await ask(app, scope)
    while export.entered == before:
        await asyncio.sleep(0.01)
        peer = await ask(app, {**scope})
    return peer


@asynccontextmanager
async def under_way(app: Any, *scopes: Scope) -> AsyncIterator[list[asyncio.Task[Peer]]]:
    """Requests that are under way; those that are left are cancelled at the end, as a server does."""
    export = export_of(app)
    tasks = [asyncio.create_task(entered(app, scope)) for scope in scopes]
    wanted = export.entered + len(scopes)
    await until(lambda: export.entered >= wanted)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def admitted(app: Any, scope: Scope | None = None) -> bool:
    """Whether one more request gets in, which ends at once."""
    export, before = app.app, app.app.ends
    export.ends = asyncio.Event()
    export.ends.set()
    peer = await ask(app, scope)
    export.ends = before
    return peer.status == 200


async def answers(app: Any, scope: Scope | None = None) -> bool:
    """Whether an app answers one more request."""
    return (await ask(app, scope)).status == 200


async def comes_back(app: Any) -> None:
    """Return when a place is free again: over Redis, nobody waits for that."""
    await until_async(lambda: admitted(app))


async def test_as_many_as_the_quota_says_are_under_way(store: Store) -> None:
    """The next is refused, and told to come back after the second that is usual; ended ones make room."""
    app = RateLimitMiddleware(Export(), "2 at once", store=store)
    async with under_way(app, http(), http()) as (first, second):
        refused = await ask(app)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert "ratelimit" not in refused.headers  # the draft has no word for it
        app.app.ends.set()
        assert [(await each).status for each in (first, second)] == [200, 200]
        await comes_back(app)
    assert app.app.most == 2


@pytest.mark.parametrize("factory", [None, getattr(asyncio, "eager_task_factory", None)], ids=["tasks", "eager tasks"])
async def test_a_place_is_free_for_the_next_request(store: Store, factory: Any) -> None:
    """However soon it comes, of however many quotas it holds one, and also where tasks begin at once."""
    asyncio.get_running_loop().set_task_factory(factory)  # eager ones are new in Python 3.12
    for rules in ([], [Rule("/", "1 at once")]):
        app = RateLimitMiddleware(ok, "1 at once", rules=rules, store=store)
        assert [(await ask(app)).status for _ in range(5)] == [200] * 5


@pytest.mark.parametrize("is_trial", [False, True])
async def test_a_request_that_is_cancelled_while_it_is_decided_leaves_no_place(store: Store, is_trial: bool) -> None:
    """At whichever await that is, and whichever of its takes has a place."""
    quota, trial = ("1000/s", "1 at once") if is_trial else ("1 at once", "1/hour")
    app = RateLimitMiddleware(ok, quota, rules=[Rule("/", trial, shadow=True, name="trial")], store=store)
    await ask(app)
    for awaits in range(60):
        gone = asyncio.create_task(ask(app))
        for _ in range(awaits):
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
    assert (await ask(app)).status == 200
    limiter = Limiter("1 at once", store=store, name="trial" if is_trial else "default")
    await until_async(lambda: is_free(limiter))


async def is_free(limiter: Limiter) -> bool:
    return bool(await limiter.peek(CLIENT[0]))


async def test_a_request_that_is_cancelled_while_it_waits_leaves_no_place_in_shadow(store: Store) -> None:
    """The trial of a rule counts what is under way."""
    rules = [Rule("/", "1/hour burst 1", max_delay=9e4), Rule("/", "1 at once", name="trial", shadow=True)]
    app = RateLimitMiddleware(ok, None, rules=rules, store=store)
    await ask(app)
    waiting = asyncio.create_task(app(http(), (visitor := Visitor()).receive, visitor.send))
    limiter = Limiter("1 at once", store=store, name="trial")

    async def is_taken() -> bool:
        return not await limiter.peek(CLIENT[0])

    await until_async(is_taken)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not await is_taken()


async def test_with_a_rate_both_decide_and_headers_show_the_rate(store: Store) -> None:
    """A request that one of them refuses takes nothing from the other."""
    app = RateLimitMiddleware(Export(), "3/hour; 1 at once", store=store)
    async with under_way(app, http()) as (first,):
        refused = await ask(app)
        assert (refused.status, refused.headers["ratelimit"].split(";t=")[0]) == (429, '"per-hour";r=2')
        assert refused.headers["retry-after"] == "1"
        app.app.ends.set()
        assert (await first).headers["ratelimit"].startswith('"per-hour";r=2')
        for _ in range(2):  # of the rate, two were left
            await comes_back(app)

        async def waits_for_the_rate() -> bool:
            return int((await ask(app)).headers["retry-after"]) > 60

        await until_async(waits_for_the_rate)


@pytest.mark.parametrize("way", ["cancelled", "exception"])
async def test_a_place_comes_back_however_a_request_ends(store: Store, way: str) -> None:
    """Cancelled by the server as the client went, or by an error of the app."""
    app = RateLimitMiddleware(Export(), "1 at once", store=store)
    for _ in range(3):
        async with under_way(app, http()) as (task,):
            assert not await admitted(app)
            if way == "exception":
                app.app.problem = ZeroDivisionError()
                app.app.ends.set()
                with suppress(ZeroDivisionError):
                    await task
                app.app.problem, app.app.ends = None, asyncio.Event()
        await comes_back(app)


@pytest.mark.filterwarnings("ignore")  # of connections that nobody has closed
def test_a_place_comes_back_though_the_event_loop_ends(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script, or in tests with an event loop each: it is not the next renewal that gives it back."""
    monkeypatch.setattr("asgi_ratelimit.leases.RENEWED_EVERY", 3600.0)
    app = RateLimitMiddleware(ok, "1 at once", store=RedisStore(redis_url, clock=SteppedClock()))
    for _ in range(3):
        asyncio.run(until_async(partial(answers, app)))
    asyncio.run(app.store.aclose())
    del app
    gc.collect()  # here, where what nobody has closed is no mistake


@pytest.mark.parametrize("make", [partial(http, "/background"), websocket], ids=["background tasks", "websocket"])
async def test_a_place_is_held_until_the_answer_has_ended(store: Store, make: Callable[[], Scope]) -> None:
    """It comes back although the app goes on with its background tasks; a WebSocket ends when it closes."""
    app = RateLimitMiddleware(Export(), "1 at once", store=store)
    async with under_way(app, make()) as (task,):
        assert not await admitted(app)
        app.app.ends.set()
        await comes_back(app)
        assert make is websocket or not task.done()


async def test_a_refusal_of_an_inner_limit_gives_the_place_back(store: Store) -> None:
    """Another middleware, whose quota is used up."""
    inner = RateLimitMiddleware(ok, "1/hour", store=store, name="inner")
    app = RateLimitMiddleware(inner, "1 at once", store=store, name="outer")
    statuses = [(await ask(app)).status for _ in range(2)]
    assert statuses == [200, 429]
    assert not held_by_name(store)  # what is held is renewed
    assert not held_by_name(None)  # nor does who counts for a store that is gone fail
    await until_async(lambda: answers(app, http(client=("192.0.2.2", 1))))


async def test_a_limit_of_fastapi_holds_to_the_end_of_the_answer(store: Store) -> None:
    """The middleware around the app sees the end; without one, the limit says so."""
    app, entered, ends = FastAPI(), asyncio.Event(), asyncio.Event()
    limit = Depends(RateLimit("1 at once", name="export", retry_after=9))

    @app.get("/", dependencies=[limit])
    async def export() -> str:
        entered.set()
        await ends.wait()
        return "done"

    with pytest.raises(ConfigurationError, match="RateLimitMiddleware"):
        await ask(app)
    limited = RateLimitMiddleware(app, store=store)
    first = asyncio.create_task(ask(limited))
    await entered.wait()
    assert (await ask(limited)).headers["retry-after"] == "9"
    ends.set()
    assert (await first).status == 200
    await until_async(lambda: answers(limited))


async def test_a_rule_says_when_to_come_back(store: Store, tmp_path: Path) -> None:
    """Nobody knows when a place is free, so the program says it."""
    file, by_function = tmp_path / "limits.toml", Rule("/", lambda request: InFlight(1), retry_after=7)
    file.write_text('[[rules]]\npath = "/"\nquota = "1 at once"\nretry_after = 15\n')
    apps = {
        "20": RateLimitMiddleware(Export(), rules=[Rule("/", "1 at once", retry_after=20)], store=store),
        "15": RateLimitMiddleware(Export(), config=file, store=store, name="file"),
        "7": RateLimitMiddleware(Export(), rules=[by_function], store=store, name="function"),
    }
    for seconds, app in apps.items():
        async with under_way(app, http()):
            assert (await ask(app)).headers["retry-after"] == seconds


@pytest.mark.parametrize("quota", ["1 at once", "1 at once; 20/s burst 1"])
async def test_requests_wait_in_order(store: Store, quota: str) -> None:
    """With ``max_delay``, the next one goes in when a place is free, and no later one before it."""
    app = RateLimitMiddleware(Export(), quota, store=store, max_delay=60.0)
    async with under_way(app, http()) as (first,):
        order: list[int] = []

        async def visit(number: int) -> None:
            visitor = Visitor()
            await app(http(), visitor.receive, visitor.send)
            assert visitor.status == 200
            order.append(number)

        waiting = [asyncio.create_task(visit(number)) for number in range(8)]
        assert app.app.most == 1
        app.app.ends.set()
        await first
        await asyncio.gather(*waiting)
        assert (order, app.app.most) == ([*range(8)], 1)


def test_who_waits_for_a_place_waits_for_nothing_else() -> None:
    """Another limit that refuses when the place has come does so, unless it may wait, too; a shadow never queues."""
    clock, seen = SteppedClock(), list[Event]()
    store, visitors, waits = MemoryStore(clock=clock), [Visitor() for _ in range(3)], {"max_delay": 20.0}
    rules = [Rule("/", "1 at once", **waits), Rule("/", "1 at once", name="shadow", shadow=True, **waits)]

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(3)
        await ok(scope, receive, send)

    async def main() -> None:
        app = RateLimitMiddleware(slow, "2 per 30 s", rules=rules, store=store, hooks=[seen.append])
        await asyncio.gather(*[app(http(), visitor.receive, visitor.send) for visitor in visitors])
        assert [visitor.status for visitor in visitors] == [200, 200, 429]

    clock.run(main())
    assert [event.result for event in seen if event.rule == "shadow"] == ["allowed", "shadowed", "shadowed"]


async def test_shadow_and_overrides(store: Store) -> None:
    """A rule in shadow counts and holds, and lets everybody pass; an override sets another number at once."""
    rules = [Rule("/", "1 at once", name="export", shadow=True)]
    app = RateLimitMiddleware(Export(), rules=rules, store=store)
    async with under_way(app, http(), http()):
        assert app.app.most == 2
    app = RateLimitMiddleware(Export(), rules=[Rule("/", "1 at once", name="pdf")], store=store)
    async with Overrides(store) as overrides, under_way(app, http()):
        assert not await admitted(app)
        await overrides.set("pdf", "2 at once")
        await comes_back(app)
        assert app.app.under_way == 1


async def test_a_limit_that_can_hold_nothing_stays_as_it_is(store: Store) -> None:
    """Without a middleware, nothing says when an answer ends: an override with places does not apply."""
    app = FastAPI()
    app.state.rate_limit_store = store
    app.add_api_route("/", lambda: "fine", dependencies=[Depends(RateLimit("1/day", name="reports"))])
    async with Overrides(store) as overrides:
        await overrides.set("reports", "5 at once")
        assert [(await ask(app)).status for _ in range(2)] == [200, 429]


async def test_an_endpoint_charges_and_settles_rates_only(store: Store) -> None:
    """One more place for the same request would be none for another one."""
    seen: list[Any] = []

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        own = limits(Request(scope, receive))
        seen.append(await own.charge(5))
        await own.settle(0)
        seen.append((await ask(app)).status)
        await ok(scope, receive, send)

    app = RateLimitMiddleware(endpoint, "10/hour; 1 at once", store=store)
    assert (await ask(app)).status == 200
    assert seen == [True, 429]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pace("5/s; 3 at once"), "calls are paced by rates"),
        (lambda: PacedTransport(httpx.HTTPTransport(), "3 at once"), "concurrency=3"),
        (lambda: AdaptiveTransport(httpx.HTTPTransport(), quota="3 at once"), r"\.hold"),
    ],
)
def test_what_has_rates_only_says_so(make: Any, message: str) -> None:
    """A place would not be given back."""
    with pytest.raises(ValueError, match=message):
        make()


class Holding:
    """A hook that counts the places that are held, by limit."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Decisions are not counted here."""

    def held(self, name: str, change: int) -> None:
        self.places[name] += change


@pytest.mark.parametrize("is_inner", [False, True], ids=["alone", "within another middleware"])
async def test_what_is_held_is_shown(store: Store, is_inner: bool) -> None:
    """To the hooks of its middleware at once, and in the summary of all processes, which is written each second."""
    hook = Holding()
    rules = [Rule("/", "3 at once", name="export")]
    app = RateLimitMiddleware(Export(), rules=rules, store=store, hooks=[hook])
    app = RateLimitMiddleware(app, "99/minute", store=store, name="outer") if is_inner else app

    async def shows(count: int) -> bool:
        return count == next((rule.held for rule in (await summary(store)).rules if rule.name == "export"), 0)

    async with under_way(app, http(), http()):
        assert hook.places == {"export": 2}
        await until_async(lambda: shows(2))
    assert hook.places == {"export": 0}
    await until_async(lambda: shows(0))


def test_places_in_a_store_of_a_dependency_are_shown() -> None:
    """The hooks of the middleware around it see them, as they see its decisions."""
    hook, app = Holding(), FastAPI()
    limit = RateLimit("3 at once", name="export", store=MemoryStore())
    app.add_middleware(RateLimitMiddleware, quota="99/minute", hooks=[hook])
    app.get("/", dependencies=[Depends(limit)])(lambda: hook.places)
    assert TestClient(app).get("/").json() == {"export": 1}
    assert hook.places == {"export": 0}
