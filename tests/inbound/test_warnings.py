"""What goes wrong silently is said aloud, once, with a link to what to do."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.inbound.startup import checks as warnings
from tests.support.asgi import Peer, ask, http, ok
from tests.support.server import ROOT, Uvicorn

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[None]:
    """Each test hears everything, as a process of its own would."""
    said = {*warnings._said}
    warnings._said.clear()
    yield
    warnings._said.update(said)


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


ROUTES = [
    Route("/", hello),
    Route("/users/{id:int}", hello, methods=["GET", "POST"]),
    WebSocketRoute("/ws", hello),
    Mount("/v1", routes=[Route("/x/{name}", hello)]),
]


async def warned(caplog: pytest.LogCaptureFixture, *middleware: Middleware, routes: Any = ROUTES) -> list[str]:
    """The subjects of what an app is warned of by its first requests."""
    app = Starlette(routes=routes, middleware=middleware)
    for _ in range(2):
        await ask(app, http())
    return re.findall(r"\(docs/warnings\.md#([\w-]+)\)", "\n".join(caplog.messages))


def limiting(quota: Any = "10/minute", **options: Any) -> Middleware:
    return Middleware(RateLimitMiddleware, quota, **options)


def rule(path: str, quota: Any = "1/s", **options: Any) -> Middleware:
    return limiting(rules=[Rule(path, quota, **options)])


async def test_nothing_is_said_of_an_app_that_is_well(caplog: pytest.LogCaptureFixture) -> None:
    """No request is free of that."""
    rules = [Rule("/users/{id}", "1/s", methods=["POST"]), Rule("/", None), Rule("/v1/{rest:path}", "2/s")]
    assert await warned(caplog, limiting(rules=rules)) == []


# Costs


@pytest.mark.parametrize(
    "middleware", [limiting(cost=11), rule("/", "1/s", cost=2), rule("/", "5/s; 1/minute", cost=2)]
)
async def test_a_cost_above_the_burst(middleware: Middleware, caplog: pytest.LogCaptureFixture) -> None:
    """Such a request can never pass."""
    assert await warned(caplog, middleware) == ["a-cost-above-the-burst"]


@pytest.mark.parametrize(
    "middleware", [limiting(cost=10), limiting(cost=lambda c: 11), limiting(lambda c: "1/s", cost=2)]
)
async def test_a_cost_that_may_pass(middleware: Middleware, caplog: pytest.LogCaptureFixture) -> None:
    """And what only a function knows is left to it."""
    assert await warned(caplog, middleware) == []


# Workers


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["uvicorn", "app:app", "--workers", "4"], None),
        (["uvicorn", "app:app", "--workers=2"], None),
        (["gunicorn", "-w", "2", "app:app"], None),
        (["uvicorn", "app:app"], "3"),
    ],
)
async def test_a_memory_store_with_several_workers(
    arguments: list[str], environment: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would let the whole quota pass."""
    monkeypatch.setattr(sys, "argv", arguments)
    if environment:
        monkeypatch.setenv("WEB_CONCURRENCY", environment)
    assert await warned(caplog, limiting()) == ["a-memory-store-with-several-workers"]


@pytest.mark.parametrize(
    "arguments", [["uvicorn", "app:app"], ["uvicorn", "--workers", "1"], ["x", "-w"], ["x", "-w", "many"]]
)
async def test_a_single_worker(
    arguments: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """May keep its limits in memory."""
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.setattr(sys, "argv", arguments)
    assert await warned(caplog, limiting()) == []


async def test_workers_that_share_a_store(
    redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Are what it is for."""
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    store = RedisStore(redis_url)
    assert await warned(caplog, limiting(store=store)) == []
    await store.aclose()


# Twice


async def test_a_middleware_added_twice(caplog: pytest.LogCaptureFixture) -> None:
    """Each request would be charged by both."""
    assert await warned(caplog, limiting(), limiting("20/minute")) == ["a-middleware-added-twice"]


async def test_a_middleware_added_twice_shows_at_start_up(caplog: pytest.LogCaptureFixture) -> None:
    """Before any request."""
    app = Starlette(routes=ROUTES, middleware=[limiting(), limiting("20/minute")])
    peer = Peer([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await app({"type": "lifespan"}, peer.receive, peer.send)
    assert "a-middleware-added-twice" in caplog.text
    assert [message["type"] for message in peer.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_warnings_show_in_the_output_of_a_server() -> None:
    """Of each of its workers, once, without any set-up of logging."""
    with Uvicorn("tests.support.inbound_apps:careless_app", "--workers", "2") as server:
        deadline = time.monotonic() + 20
        while True:
            output = server.output()
            found = Counter(re.findall(r"docs/warnings\.md#([\w-]+)", output))
            if len(found) == 4 or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        httpx.get(f"{server.url}/")
        again = Counter(re.findall(r"docs/warnings\.md#([\w-]+)", server.output()))
    assert (
        set(found)
        == set(again)
        == {
            "a-memory-store-with-several-workers",
            "a-middleware-added-twice",
            "a-rule-that-never-applies",
            "a-cost-above-the-burst",
        }
    )
    assert set(again.values()) <= {1, 2}


async def test_two_middlewares_with_names(caplog: pytest.LogCaptureFixture) -> None:
    """Were meant to be two; so were those around the app and around a route."""
    assert await warned(caplog, limiting(name="a"), limiting(name="b")) == []
    route = Route("/", hello, middleware=[limiting()])
    assert await warned(caplog, limiting(), routes=[route]) == []


# Rules


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/user/{id}", {}),
        ("/users", {}),
        ("/users/{id}/", {}),
        ("/x/{name}", {}),
        ("/v1", {}),
        ("/users/{id:uuid}", {}),
        ("/users/{id}", {"methods": ["DELETE"]}),
        ("/ws", {"methods": ["GET"]}),
    ],
)
async def test_a_rule_that_matches_no_route(path: str, options: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt path, one without its mount, a method that is not there."""
    assert await warned(caplog, rule(path, **options)) == ["a-rule-that-never-applies"]
    assert repr(path) in caplog.text


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/users/7", {}),
        ("/users/{id}", {"methods": ["OPTIONS", "DELETE"]}),
        ("/users/{id}", {"methods": ["get"]}),
        ("/{rest:path}", {"methods": ["POST"]}),
        ("/ws", {}),
        ("/v1/x/me", {}),
        ("/v1/{rest:path}", {}),
    ],
)
async def test_a_rule_that_matches_some_route(path: str, options: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Or a part of one, or more than one."""
    assert await warned(caplog, rule(path, **options)) == []


async def test_an_app_of_an_unknown_kind_may_have_any_route(caplog: pytest.LogCaptureFixture) -> None:
    """So does one below a mount."""
    await ask(RateLimitMiddleware(ok, rules=[Rule("/any/thing", "1/s")]))
    assert await warned(caplog, rule("/static/app.css"), routes=[Mount("/static", ok)]) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Rule("/users/{id}", None), Rule("/users/{id:int}", "1/s"), True),
        (Rule("/users/{id}", "2/s", only=True), Rule("/users/{id}", "1/s", methods=["POST"]), True),
        (Rule("/{rest:path}", None), Rule("/", "1/s"), True),
        (Rule("/users/{id}", "2/s"), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", None, methods=["GET"]), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", None, methods=["GET", "POST"]), Rule("/users/{id}", "1/s", methods=["POST"]), True),
        (Rule("/users/7", None), Rule("/users/{id}", "1/s"), False),
        (Rule("/users/{id}", "2/s", only=True, shadow=True), Rule("/users/{id}", "1/s"), False),
    ],
)
async def test_a_rule_behind_one_that_stands_alone(
    first: Rule, second: Rule, expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It never applies where an earlier rule matches whatever it does, and is ``only`` or exempts."""
    subjects = await warned(caplog, limiting(rules=[first, second]))
    assert subjects == ["a-rule-that-never-applies"] * expected


# All of them


async def test_each_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many apps are wrong in the same way."""
    for _ in range(3):
        assert await warned(caplog, limiting(cost=11)) == ["a-cost-above-the-burst"]


def test_each_has_its_place_in_the_docs() -> None:
    """The link of a warning leads to a heading."""
    page = (ROOT / warnings.PAGE).read_text("utf-8")
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    source = (ROOT / "asgi_ratelimit" / "inbound" / "warnings.py").read_text("utf-8")
    subjects = set(re.findall(r'"(a-[\w-]+)"', source))
    assert len(subjects) == 4
    assert subjects <= headings


def test_a_store_of_ones_own_may_be_in_memory() -> None:
    """What is derived from the memory store is no other process's either."""

    class Own(MemoryStore):
        pass

    warnings.warn_of_workers(Own())
