"""Rules of every kind that come to more than one take may charge, in memory, on one Redis and on a cluster.

Each rule has another key: on a cluster, each part of the take is itself split by node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import (
    Blocks,
    MemoryStore,
    Penalty,
    RateLimit,
    RateLimitMiddleware,
    RedisStore,
    TokenBucket,
    limits,
)
from asgi_ratelimit.hooks import Event, StoreCall
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, ok
from tests.support.redis_cluster import RedisCluster
from tests.support.split_takes import KEYS, all_used, keyed, quotas, returning, used

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """A cluster for the whole module."""
    with RedisCluster() as running:
        yield running


@pytest.fixture(params=["memory", "redis", "cluster"])
async def store(request: pytest.FixtureRequest, clock: SteppedClock) -> AsyncIterator[Store]:
    """Each kind of store in turn, empty, on that clock."""
    made: Store = MemoryStore(clock=clock)
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis_url"), clock=clock, on_error="deny")
    if request.param == "cluster":
        nodes: RedisCluster = request.getfixturevalue("cluster")
        nodes.flush()
        made = RedisStore(nodes.url, clock=clock, on_error="deny")
    yield made
    await made.aclose()


def a_quota(limit: float, place: int) -> list[TokenBucket]:
    """Quotas of 100 an hour, but for the one at this place."""
    return [TokenBucket(limit if at == place else 100, 3600, name=f"q{at}") for at in range(45)]


def kind(peer: Peer) -> str:
    """The type of problem details, without the URL of its registry."""
    text: str = peer.problem["type"]
    return text.partition("#")[2]


@pytest.mark.parametrize("place", [0, 44])
@pytest.mark.parametrize("refusing", [0, 1, 2])
async def test_a_request_takes_from_all_or_from_none(store: Store, refusing: int, place: int) -> None:
    """Whichever rule refuses, in whichever part, and on whichever node."""
    listed = [a_quota(2 if at == refusing else 100, place) for at in range(3)]
    app = RateLimitMiddleware(ok, rules=[keyed(at, *each) for at, each in enumerate(listed)], store=store)
    answers = [await ask(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert [answer.headers.get("retry-after") for answer in answers] == [None, None, "1800", "1800"]
    assert await all_used(store, listed) == [{2}] * 3


@pytest.mark.parametrize("refusing", [0, 1, 2])
async def test_many_at_once_are_each_charged_all_or_nothing(store: Store, refusing: int) -> None:
    """No more pass than the smallest quota allows, and each bucket has what those were charged, no more."""
    listed = [a_quota(5 if at == refusing else 100, 7) for at in range(3)]
    app = RateLimitMiddleware(ok, rules=[keyed(at, *each) for at, each in enumerate(listed)], store=store)
    statuses = Counter([peer.status for peer in await asyncio.gather(*[ask(app) for _ in range(12)])])
    assert set(statuses) <= {200, 429}
    assert statuses[200] <= 5
    assert await all_used(store, listed) == [{statuses[200]}] * 3


async def test_a_penalty_counts_what_its_own_rule_refuses(store: Store, clock: SteppedClock) -> None:
    """Its block refuses the whole request, and charges nothing; the other rules block nobody."""
    listed = [a_quota(100, 0), a_quota(1, 44), a_quota(100, 0)]
    penalties = [Penalty("1 day"), Penalty("10 hours", after=2), None]
    rules = [keyed(at, *each, penalty=penalties[at]) for at, each in enumerate(listed)]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    answers = [await ask(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 429, 429, 429]
    assert list(map(kind, answers[1:])) == ["quota-exceeded", *["abnormal-usage-detected"] * 2]
    assert [answer.headers["retry-after"] for answer in answers[1:]] == ["3600", "36000", "36000"]
    assert await all_used(store, listed) == [{1}] * 3
    assert [await Blocks(store=store, name=key).blocked_for(key) for key in KEYS] == [0.0, pytest.approx(36_000), 0.0]
    clock.advance(36_000)
    assert [(await ask(app)).status for _ in range(2)] == [200, 429]
    assert await all_used(store, listed) == [{1}] * 3


@pytest.mark.parametrize("blocked", [0, 1, 2])
async def test_a_block_refuses_in_any_part(store: Store, blocked: int) -> None:
    """No bucket is charged meanwhile, and each one is when the block is lifted."""
    listed = [a_quota(100, 0)] * 3
    rules = [keyed(at, *each, penalty=Penalty("1 day")) for at, each in enumerate(listed)]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    await Blocks(store=store, name=KEYS[blocked]).block(KEYS[blocked], "1 hour")
    answers = [await ask(app) for _ in range(3)]
    assert [(answer.status, answer.headers["retry-after"]) for answer in answers] == [(429, "3600")] * 3
    assert await all_used(store, listed) == [{0}] * 3
    await Blocks(store=store, name=KEYS[blocked]).lift(KEYS[blocked])
    assert (await ask(app)).status == 200
    assert await all_used(store, listed) == [{1}] * 3


async def test_each_rule_settles_its_own_charges(store: Store) -> None:
    """Less is given back and more is charged, in every part; a refused request settles nothing."""
    listed, asked = [a_quota(100, 0), a_quota(100, 0), a_quota(10, 44)], []

    def settling(actual: float) -> Any:
        def settle(status: int, headers: object) -> float:
            asked.append(actual)
            return actual

        return settle

    settles = [settling(0), settling(7), None]
    rules = [keyed(at, *each, cost=5, settle=settles[at]) for at, each in enumerate(listed)]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    assert [(await ask(app)).status for _ in range(3)] == [200, 200, 429]
    assert asked == [0, 7, 0, 7]
    assert await all_used(store, listed) == [{0}, {14}, {10}]


async def test_shadow_rules_count_beside_it_and_refuse_nobody(store: Store) -> None:
    """They are charged for each request, the refused ones too, and are settled; what is enforced is all or nothing."""
    listed = [a_quota(100, 0), a_quota(100, 0), a_quota(2, 44)]
    enforced = [keyed(at, *each) for at, each in enumerate(listed)]
    full, roomy = quotas(45, 1, start="s"), quotas(45, start="t")
    first = keyed(0, *full, shadow=True, name="full")
    last = keyed(1, *roomy, shadow=True, name="roomy", cost=3, settle=lambda status, headers: 1)
    seen: list[Event] = []
    app = RateLimitMiddleware(ok, rules=[first, *enforced, last], store=store, hooks=[seen.append])
    answers = [await ask(app) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit"].count(";r=") == 135
    assert [(each.decision.shadow, each.decision.allowed) for each in seen] == [
        *[(False, True), (True, True), (True, True)],
        *[(False, True), (True, False), (True, True)],
        *[(False, False), (True, False), (True, True)],
    ]
    assert await all_used(store, listed) == [{2}] * 3
    assert set(await used(store, "full", *full, key=KEYS[0])) == {1}
    assert set(await used(store, "roomy", *roomy, key=KEYS[1])) == {1 + 1 + 3}  # a refused request is not settled


async def test_with_max_delay_it_is_refused_at_once(store: Store, clock: SteppedClock) -> None:
    """Nothing is booked ahead: it says when it may come again, and is admitted then."""
    listed = [a_quota(100, 0), a_quota(1, 44), a_quota(100, 0)]
    rules = [keyed(at, *each, max_delay=9999) for at, each in enumerate(listed)]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    answers = [await ask(app) for _ in range(3)]
    assert [(answer.status, answer.headers.get("retry-after")) for answer in answers] == [
        (200, None),
        (429, "3600"),
        (429, "3600"),
    ]
    assert "x-ratelimit-delay" not in answers[1].headers
    assert answers[1].reads == 0  # nobody has watched for its end
    assert await all_used(store, listed) == [{1}] * 3
    clock.advance(3600)
    assert (await ask(app)).status == 200
    assert await all_used(store, listed) == [{1}] * 3


@pytest.mark.parametrize("is_first", [True, False])
async def test_dependencies_give_back_what_a_later_one_refuses(store: Store, is_first: bool) -> None:
    """One of two rules together that charges more than one take may, before or after another that refuses."""
    listed = [a_quota(100, 0), a_quota(3 if is_first else 2, 44), a_quota(2 if is_first else 3, 44)]
    of = [
        RateLimit(returning(*each), key=lambda connection, key=key: key, name=key)  # type: ignore[misc]
        for key, each in zip(KEYS, listed)
    ]
    together = Depends(RateLimit.together(*of[:2]))
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=store)

    @app.get("/", dependencies=[together, Depends(of[2])] if is_first else [Depends(of[2]), together])
    async def show() -> str:
        return "fine"

    answers = [await ask(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["ratelimit"].count(";r=") == 135
    assert answers[2].headers["retry-after"] == "1800"
    assert await all_used(store, listed) == [{2}] * 3


async def test_an_endpoint_charges_and_refunds_in_all_parts(store: Store) -> None:
    """All or nothing, too."""
    listed = [a_quota(100, 0), a_quota(100, 0), a_quota(10, 44)]

    async def show(request: Request) -> PlainTextResponse:
        charged = [await limits(request).charge(cost, required=False) for cost in (4, 9, 3)]
        await limits(request).refund(2, name=KEYS[1])
        return PlainTextResponse(f"{charged}")

    app = Starlette(routes=[Route("/", show)])
    rules = [keyed(at, *each) for at, each in enumerate(listed)]
    answer = await ask(RateLimitMiddleware(app, rules=rules, store=store))
    assert answer.body == b"[True, False, True]"
    assert await all_used(store, listed) == [{8}, {3}, {8}]


class Canceller:
    """It cancels a task as soon as so many calls of a store are answered."""

    def __init__(self, store: Store, calls: int, task: asyncio.Task[Peer]) -> None:
        self._left = calls
        self._task = task
        store.observe(self)

    def store_called(self, _: StoreCall) -> None:
        self._left -= 1
        if self._left == 0:
            self._task.cancel()


@pytest.mark.parametrize("calls", range(1, 7))
@pytest.mark.parametrize("store", ["redis", "cluster"], indirect=True)
async def test_a_request_that_is_cancelled_with_an_answer_is_charged_nothing(store: Store, calls: int) -> None:
    """What Redis has taken is given back, also where the answer comes at the same moment."""
    listed = [a_quota(100, 0)] * 3
    app = RateLimitMiddleware(ok, rules=[keyed(at, *each) for at, each in enumerate(listed)], store=store)
    assert (await ask(app)).status == 200
    task = asyncio.ensure_future(ask(app))
    canceller = Canceller(store, calls, task)
    await asyncio.wait((task,))
    assert await all_used(store, listed) == [{1 if task.cancelled() else 2}] * 3
    del canceller
