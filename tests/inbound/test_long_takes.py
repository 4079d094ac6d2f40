"""A request that is charged more than one take may is decided by several takes: all or nothing, and never an error."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from fastapi import Depends, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import (
    Blocks,
    MemoryStore,
    Overrides,
    Penalty,
    RateLimit,
    RateLimitMiddleware,
    Rule,
    TokenBucket,
    limits,
)
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.stores import RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok, websocket
from tests.support.split_takes import ADDRESS, quotas, returning, used

pytestmark = pytest.mark.anyio


def a_store() -> MemoryStore:
    return MemoryStore(clock=SteppedClock())


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("on_redis", [False, pytest.param(True, marks=pytest.mark.redis)])
async def test_what_one_part_refuses_is_given_back_by_the_others(
    is_last: bool, on_redis: bool, request: pytest.FixtureRequest
) -> None:
    """A request takes from all quotas of its functions or from none, whichever of them refuses."""
    store: Store = RedisStore(request.getfixturevalue("redis_url")) if on_redis else a_store()
    one, other = quotas(30, 100 if is_last else 2, "p"), quotas(30, 2 if is_last else 100, "q")
    rules = [Rule("/", returning(*one), name="one"), Rule("/", returning(*other), name="other")]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    answers = [await ask(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert int(answers[2].headers["retry-after"]) in range(1795, 1801)
    assert await used(store, "one", *one) + await used(store, "other", *other) == [2] * 60
    await store.aclose()


@given(st.lists(st.integers(1, 4), min_size=40, max_size=130))
async def test_no_quota_ever_passes_its_limit(limits_of: list[int]) -> None:
    """However many there are, as many requests pass as the smallest allows, and refused ones are charged nothing."""
    each = [TokenBucket(limit, 3600, name=f"q{number}") for number, limit in enumerate(limits_of)]
    groups = [each[start : start + 45] for start in range(0, len(each), 45)]
    rules = [Rule("/", returning(*group), name=f"r{number}") for number, group in enumerate(groups)]
    store = a_store()
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    statuses = [(await ask(app)).status for _ in range(5)]
    least = min(limits_of)
    assert statuses == [200] * least + [429] * (5 - least)
    for number, group in enumerate(groups):
        assert await used(store, f"r{number}", *group) == [least] * len(group)


async def test_an_override_that_makes_it_too_much_applies() -> None:
    """Its quotas hold beside those of the rules, and when it ends, what was used stays used."""
    store, under = a_store(), quotas(30, 3)
    rules = [Rule("/", quotas(30, start="p"), name="rule")]
    app = RateLimitMiddleware(ok, "9/hour", rules=rules, store=store)
    assert (await ask(app)).status == 200
    overrides = Overrides(store)
    await overrides.set("default", under)
    assert [(await ask(app)).status for _ in range(4)] == [200, 200, 200, 429]
    assert await used(store, "default", *under) == [3] * 30
    await overrides.unset("default")
    assert (await ask(app)).status == 200
    assert await used(store, "rule", *quotas(30, start="p")) == [5] * 30


async def test_a_refusal_in_any_part_is_punished_and_a_block_refuses() -> None:
    """The penalty of each rule counts what that rule refuses."""
    store = a_store()
    one, other = returning(*quotas(50, start="p")), returning(*quotas(50, 1))
    rules = [Rule("/", one, name="one", penalty=Penalty(10)), Rule("/", other, name="other", penalty=Penalty("1 day"))]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    answers = [await ask(app) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 429, 429]
    assert [answer.headers["retry-after"] for answer in answers[1:]] == ["86400", "86400"]
    assert await Blocks(store=store, name="one").blocked_for(ADDRESS) == 0
    assert await used(store, "one", *quotas(50, start="p")) == [1] * 50


async def test_the_answer_settles_what_each_rule_charges() -> None:
    """The whole is one decision, of which a rule settles its own charges."""
    store, one, other = a_store(), quotas(45, start="p"), quotas(45)
    rules = [
        Rule("/", returning(*one), name="one", cost=5),
        Rule("/", returning(*other), name="other", cost=5, settle=lambda status, headers: 2),
    ]
    decided: list[Event] = []
    app = RateLimitMiddleware(ok, rules=rules, store=store, hooks=[decided.append])
    answer = await ask(app)
    assert (answer.status, len(decided), len(decided[0].decision.states)) == (200, 1, 90)
    assert answer.headers["ratelimit"].count(";r=") == 90
    assert await used(store, "one", *one) == [5] * 45
    assert await used(store, "other", *other) == [2] * 45


async def test_an_endpoint_charges_all_or_nothing() -> None:
    """``charge``, ``refund`` and their refusals concern all charges, however many takes there are."""
    store, one, other = a_store(), quotas(45, start="p"), quotas(45, 10)

    async def show(request: Request) -> PlainTextResponse:
        charged = await limits(request).charge(float(request.query_params["pages"]), required=False)
        if "refund" in request.query_params:
            await limits(request).refund()
        return PlainTextResponse("yes" if charged else "no")

    app = Starlette(routes=[Route("/", show)])
    rules = [Rule("/", returning(*one), name="one"), Rule("/", returning(*other), name="other")]
    limited = RateLimitMiddleware(app, rules=rules, store=store)
    for query, body, total in ((b"pages=4", b"yes", 5), (b"pages=5", b"no", 6), (b"pages=1&refund=1", b"yes", 6)):
        assert (await ask(limited, http(query_string=query))).body == body
        assert await used(store, "one", *one) + await used(store, "other", *other) == [total] * 90


def test_a_request_of_several_takes_does_not_wait() -> None:
    """With ``max_delay`` it is refused at once, and charged nothing."""
    clock = SteppedClock()
    store, start = MemoryStore(clock=clock), clock.now

    class Patient(Peer):
        async def receive(self) -> Message:
            return await super().receive() if self.waiting else await asyncio.Event().wait()  # type: ignore[return-value]

    async def two() -> None:
        for status in (200, 429):
            peer = Patient()
            await app(http(), peer.receive, peer.send)
            assert (peer.status, clock.now) == (status, start)
        assert await used(store, "one", *quotas(45, start="p")) == [1] * 45

    rules = [
        Rule("/", returning(*quotas(45, start="p")), name="one", max_delay=9999),
        Rule("/", returning(*quotas(45, 1)), name="other", max_delay=9999),
    ]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    clock.run(two())


async def test_constant_rules_that_meet_unforeseen_are_decided_too() -> None:
    """Patterns that only meet at a path of which neither is an example."""
    rules = [
        Rule("/{a}-b", quotas(30, start="p"), name="one"),
        Rule("/c-{d}", quotas(30, 2), name="other"),
    ]
    store = a_store()
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    assert [(await ask(app, http("/c-b"))).status for _ in range(3)] == [200, 200, 429]
    assert await used(store, "one", *quotas(30, start="p")) == [2] * 30


async def test_dependencies_of_functions_are_decided_too() -> None:
    """``RateLimit.together`` of functions that return more than one take may charge."""
    store = a_store()
    one, other = RateLimit(returning(*quotas(45)), name="one"), RateLimit(returning(*quotas(45, 2)), name="other")
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=store)

    @app.get("/", dependencies=[Depends(RateLimit.together(one, other))])
    async def show() -> str:
        return "fine"

    assert [(await ask(app)).status for _ in range(3)] == [200, 200, 429]
    assert await used(store, "one", *quotas(45)) == [2] * 45


def test_messages_of_several_takes_keep_to_each_quota() -> None:
    """A message of a WebSocket waits for the slowest quota of all takes."""
    clock, came = SteppedClock(), []

    async def reads(_: Scope, receive: Receive, __: Send) -> None:
        for _ in range(3):
            await receive()
            came.append(clock.now)

    async def text() -> Message:
        return {"type": "websocket.receive", "text": "hello"}

    slow = TokenBucket(1, 2, burst=1, name="slow")
    one, other = [slow, *quotas(29, start="p")], quotas(30)
    rules = [Rule("/{a}-b", "9/s", messages=one), Rule("/c-{d}", "9/s", messages=other)]
    app = RateLimitMiddleware(reads, rules=rules, store=MemoryStore(clock=clock))
    clock.run(app(websocket("/c-b"), text, Peer().send))
    assert [round(later - earlier, 6) for earlier, later in pairwise(came)] == [2.0, 2.0]
