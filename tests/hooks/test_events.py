"""Hooks: they are called with every decision, change none, and are told of the request."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import Limiter, Limits, PacedTransport, PaceTimeout, RateLimit, RateLimitMiddleware, Rule, limits
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.hooks import Event, Failure, failures, log_refusals
from asgi_ratelimit.metrics import prometheus
from asgi_ratelimit.stores import MemoryStore
from tests.support.asgi import ask, http, limited, ok, starlette
from tests.support.visitors import Site, Visitor

pytestmark = pytest.mark.anyio


async def events_of(app: Any, events: list[Event], *scopes: Any) -> list[Event]:
    """The events of requests of these scopes."""
    events.clear()
    for scope in scopes:
        await ask(app, scope)
    return events


async def test_an_event_names_the_rule_that_decided() -> None:
    """That is the one whose quota refused, or else the one with the least left; the limiter keeps its own name."""
    events: list[Event] = []
    rules = [Rule("/login", "2/minute", name="login"), Rule("/login", "1/second", name="burst", methods=["POST"])]
    app = limited(ok, "10/minute", name="api", rules=rules, hooks=[events.append])
    await events_of(app, events, http("/"), http("/login"), http("/login", method="POST"), http("/login"))
    assert [event.rule for event in events] == ["api", "login", "login", "login"]
    assert [event.result for event in events] == ["allowed", "allowed", "allowed", "refused"]
    assert [event.quota.name for event in events] == ["per-minute"] * 4
    assert {event.name for event in events} == {"api"}


async def test_an_event_tells_the_request() -> None:
    """Its method, path and route, before and after the app has run, and whose bucket it was."""
    events: list[Event] = []
    routes_at_once: list[str | None] = []
    app = starlette(Route("/users/{id:int}", PlainTextResponse("user")))
    around = RateLimitMiddleware(
        app, "1/minute", name="around", hooks=[events.append, lambda event: routes_at_once.append(event.route)]
    )
    await events_of(around, events, http("/users/7"), http("/users/7"), http("/nowhere", method="POST"))
    assert [(event.method, event.path, event.route) for event in events] == [
        ("GET", "/users/7", "/users/{id:int}"),
        ("GET", "/users/7", "/users/{id:int}"),
        ("POST", "/nowhere", None),
    ]
    assert routes_at_once == ["/users/{id:int}", "/users/{id:int}", None]
    assert [event.key for event in events] == ["192.0.2.1"] * 3
    assert events[0].request is not None
    assert events[0].request.scope["type"] == "http"


async def test_events_of_dependencies_tell_the_route() -> None:
    """Also of one with a store of its own: the hooks are those of the middleware."""
    events: list[Event] = []
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, hooks=[events.append])
    own = RateLimit("5/minute", name="own", store=MemoryStore())
    shared = RateLimit("5/minute", name="shared")

    @app.get("/items/{number}", dependencies=[Depends(own), Depends(shared)])
    async def item(number: int) -> None: ...

    await events_of(app, events, http("/items/3"))
    assert [(event.rule, event.route) for event in events] == [
        ("own", "/items/{number}"),
        ("shared", "/items/{number}"),
    ]
    assert all(event.latency is not None and event.latency > 0 for event in events)


def test_a_request_that_has_waited() -> None:
    """The event says how long; those that pass at once, or are refused at once, have not."""
    events: list[Event] = []
    assert Site("2/s burst 1", max_delay=0.5, hooks=[events.append]).run(*[Visitor() for _ in range(3)])
    assert [(event.result, event.waited) for event in sorted(events, key=lambda event: event.waited or 0)] == [
        ("allowed", None),
        ("refused", None),
        ("allowed", 0.5),
    ]


@pytest.mark.parametrize("quota", ["1000/s", "1/minute"], ids=["sent", "too late"])
async def test_events_of_a_transport(quota: str) -> None:
    """One for each request, with the time that it has waited."""
    events: list[Event] = []
    answers = httpx.MockTransport(lambda request: httpx.Response(200))
    transport = PacedTransport(answers, quota, name="api", max_delay=0.5, hooks=[events.append])
    async with httpx.AsyncClient(transport=transport) as client:
        await asyncio.gather(*[client.get("http://test/") for _ in range(2)], return_exceptions=True)
    results = ["allowed", "allowed" if quota == "1000/s" else "refused"]
    assert [(event.rule, event.result) for event in events] == [("api", result) for result in results]
    assert all(event.waited is not None for event in events)


async def test_a_hook_is_called_with_decisions_inside_the_app() -> None:
    """Those of a dependency, and those of charges that an endpoint makes."""
    events: list[Event] = []
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, "10/minute", hooks=[events.append])

    @app.get("/", dependencies=[Depends(RateLimit("5/minute"))])
    async def endpoint(request: Annotated[Limits, Depends(limits)]) -> None:
        await request.charge(4)
        await request.charge(4)

    assert (await ask(app)).status == 429
    assert [event.decision.allowed for event in events] == [True, True, True, False]


async def test_a_limiter_calls_its_hooks_with_every_take() -> None:
    """Limiting, pacing, spending, and a spending that times out; peeking and refunding are no decisions."""
    events: list[Event] = []
    limiter = Limiter("1/hour", name="jobs", hooks=[events.append])
    first = await limiter.rate_limit("alice")
    assert await limiter.peek("alice") not in [event.decision for event in events]
    await limiter.refund(first)
    async with limiter.spend("alice", 1):
        pass
    with pytest.raises(PaceTimeout) as caught:
        await limiter.spend("alice", 1, max_delay=1).__aenter__()
    refused = await limiter.pace("alice", max_delay=1)
    assert [(event.name, event.rule) for event in events] == [("jobs", "jobs")] * 4
    assert [event.decision.allowed for event in events] == [True, True, False, False]
    assert [(event.latency is None, event.waited is None) for event in events] == [
        (False, True),
        (True, False),
        (True, False),
        (False, True),
    ]
    assert [(event.method, event.path, event.route, event.request) for event in events] == [(None,) * 4] * 4
    assert events[2].decision is caught.value.decision
    assert events[3].decision is refused


@pytest.mark.parametrize("hooks", [None, 5, print], ids=["none", "a number", "a function"])
def test_hooks_that_are_not_several_are_refused_at_start_up(hooks: Any) -> None:
    """The error quotes the value, and shows a valid one."""
    with pytest.raises(ConfigurationError, match=rf"not {re.escape(repr(hooks))}: hooks=\[print\]"):
        RateLimitMiddleware(ok, "1/s", hooks=hooks)


async def test_hooks_for_failures_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The request passes, the other hooks are called, and the error is logged."""
    counted: list[Failure] = []

    class Gauge:
        """A hook for both, whose text changes with each call."""

        calls = 0

        def __repr__(self) -> str:
            return f"Gauge({self.calls})"

        def __call__(self, event: Event) -> None:
            self.calls += 1
            raise LookupError(f"no such gauge: {event.name}")

        def failed(self, failure: Failure) -> None:
            counted.append(failure)
            raise LookupError("no such counter")

    def key(request: Any) -> str:
        raise KeyError("user")

    app = limited(ok, key=key, hooks=[Gauge(), failures(counted.append)])
    assert [(await ask(app)).status for _ in range(3)] == [200] * 3
    assert len(counted) == 6
    assert counted[0] == Failure("default", "key", counted[0].error)
    assert len([message for message in caplog.messages if "no such gauge" in message]) == 1
    assert len([message for message in caplog.messages if "no such counter" in message]) == 1


def test_a_hook_that_is_not_callable_or_lacks_its_call_is_refused() -> None:
    """At once, with a valid one."""
    with pytest.raises(ConfigurationError, match=r"not 7: hooks=\[failures\(print\)\]"):
        failures(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"the hook log_refusals lacks its call: hooks=\[log_refusals\(\)\]"):
        Limiter("1/hour", hooks=[log_refusals])
    with pytest.raises(ConfigurationError, match=r"the hook prometheus lacks its call: hooks=\[prometheus\(\)\]"):
        Limiter("1/hour", hooks=[prometheus])
