"""A request whose take is split is charged all or nothing, on each store, whatever its rules are."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from asgi_ratelimit import (
    Charge,
    FixedWindow,
    MemoryStore,
    Quota,
    QuotaState,
    RateLimitMiddleware,
    RedisStore,
    RollingWindow,
    Rule,
    Take,
    TokenBucket,
    limits,
)
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok
from tests.support.examples import up_to
from tests.support.late_stores import SlowStore
from tests.support.split_takes import ADDRESS, quotas, returning, used

pytestmark = pytest.mark.anyio

KINDS = [
    lambda limit, name: TokenBucket(limit, 60, name=name),
    lambda limit, name: TokenBucket(limit, 60, burst=2 * limit, name=name),
    lambda limit, name: FixedWindow(limit, 60, name=name),
    lambda limit, name: RollingWindow(limit, 60, 12, name=name),
]
RULES, QUOTAS = 5, 12
PREFIXES = (f"example {number}" for number in count())


class Visit(NamedTuple):
    """A request to the path of one rule, or to that of all, so many seconds after the one before."""

    path: str
    seconds: float


class Site(NamedTuple):
    """The quotas and the cost of each rule, and what is asked for."""

    groups: list[list[Quota]]
    costs: list[float]
    visits: list[Visit]


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Rules of all kinds of quotas, of which a few are small, and which are too many for one take together."""
    small = draw(st.sets(st.integers(0, RULES * QUOTAS - 1), min_size=1, max_size=3))
    first = draw(st.integers(0, 3))
    limits = [3 if at in small else 40 for at in range(RULES * QUOTAS)]
    listed = [KINDS[(first + at) % 4](limit, f"q{at}") for at, limit in enumerate(limits)]
    paths = st.sampled_from(["/all", "/all", *[f"/{at}" for at in range(RULES)]])
    return Site(
        [listed[start : start + QUOTAS] for start in range(0, len(listed), QUOTAS)],
        draw(st.lists(st.sampled_from([1, 1.5, 2]), min_size=RULES, max_size=RULES)),
        draw(st.lists(st.builds(Visit, paths, st.sampled_from([0, 0.7, 9])), min_size=3, max_size=9)),
    )


async def states_of(store: Store, site: Site) -> list[QuotaState]:
    """The state of each bucket."""
    takes = [
        Take(tuple([Charge(quota, ADDRESS, 1, f"r{at}") for quota in group])) for at, group in enumerate(site.groups)
    ]
    return [state for peeked in await asyncio.gather(*map(store.peek, takes)) for state in peeked.states]


@given(site=sites())
@up_to(100)
async def test_a_refused_request_changes_no_bucket(store_url: str, site: Site) -> None:
    """Whatever was charged before, and whichever quotas refuse: each says exactly what it said before."""
    clock = SteppedClock()
    store: Store = MemoryStore(clock=clock)
    if store_url != "memory://":
        store = RedisStore(store_url, prefix=next(PREFIXES), clock=clock, on_error="deny")
    each = [(f"r{at}", returning(*group), cost) for at, (group, cost) in enumerate(zip(site.groups, site.costs))]
    rules = [
        Rule(path, quota, name=name, cost=cost)
        for at, (name, quota, cost) in enumerate(each)
        for path in ("/all", f"/{at}")
    ]
    app = RateLimitMiddleware(ok, rules=rules, store=store)
    for visit in site.visits:
        clock.advance(visit.seconds)
        before = await states_of(store, site)
        answer = await ask(app, http(visit.path))
        after = await states_of(store, site)
        charged = [now != then for now, then in zip(after, before)]
        if answer.status == 429:
            assert not any(charged)
        else:
            asked = [visit.path in ("/all", f"/{at}") for at in range(RULES) for _ in range(QUOTAS)]
            assert (answer.status, charged) == (200, asked)
    await store.aclose()


async def test_a_charge_that_is_refused_is_not_in_the_headers(store: Store) -> None:
    """What one part took and the other gave back is reported as left, and in no decision."""
    one, other = quotas(45, start="p"), quotas(45, 10)
    seen: list[tuple[bool, int]] = []

    async def show(request: Request) -> PlainTextResponse:
        for cost in (4, 8):
            await limits(request).charge(cost, required=False)
        seen.extend([(each.allowed, len(each.states)) for each in limits(request).decisions])
        return PlainTextResponse("fine")

    rules = [Rule("/", returning(*one), name="one"), Rule("/", returning(*other), name="other")]
    app = RateLimitMiddleware(Starlette(routes=[Route("/", show)]), rules=rules, store=store)
    reported = (await ask(app)).headers["ratelimit"].split(", ")
    assert [each.split(";")[1] for each in reported] == ["r=95"] * 89 + ["r=5"]
    assert await used(store, "one", *one) + await used(store, "other", *other) == [5] * 90
    assert seen == [(True, 90), (True, 50), (True, 40), (False, 40)]


async def cancelled(app: ASGIApp, at: float, times: int) -> None:
    """Send a request that is cancelled at this time, so many times one after another; 0 is for good, by a scope."""
    peer = Peer()
    async with anyio.create_task_group() as group:
        if times == 0:
            group.start_soon(app, http(), peer.receive, peer.send)
            await asyncio.sleep(at)
            group.cancel_scope.cancel()
            return
        task = asyncio.ensure_future(app(http(), peer.receive, peer.send))
        await asyncio.sleep(at)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((task,))
        assert task.cancelled()
    assert not peer.sent


EACH_CANCELLATION = pytest.mark.parametrize("times", [0, 1, 3], ids=["by a scope", "once", "again and again"])
DURING_EACH_PART = pytest.mark.parametrize("at", [0.05, 0.1, 0.15, 0.25])


@EACH_CANCELLATION
@DURING_EACH_PART
@pytest.mark.parametrize("limit", [100, 1])
def test_a_request_that_is_cancelled_is_charged_nothing(limit: float, at: float, times: int) -> None:
    """Neither what was taken by then nor the part that is under way stays charged, also if that is refused."""
    clock = SteppedClock()
    store, listed = SlowStore(clock=clock), [quotas(45, limit if at == 2 else 100, f"{at}-") for at in range(3)]
    rules = [Rule("/", returning(*each), name=f"r{at}") for at, each in enumerate(listed)]
    app = RateLimitMiddleware(ok, rules=rules, store=store)

    async def cancel() -> None:
        assert (await ask(app)).status == 200
        await cancelled(app, at, times)
        await asyncio.sleep(1)
        assert [await used(store, f"r{at}", *each) for at, each in enumerate(listed)] == [[1] * 45] * 3

    clock.run(cancel())


@EACH_CANCELLATION
@DURING_EACH_PART
def test_an_endpoint_that_is_cancelled_while_it_charges_charges_nothing(at: float, times: int) -> None:
    """What the request was charged at its start stays charged, and no part of what the endpoint charges."""
    clock = SteppedClock()
    store, listed = SlowStore(clock=clock), [quotas(45, start=f"{at}-") for at in range(3)]

    async def show(request: Request) -> PlainTextResponse:
        await limits(request).charge(9)
        return PlainTextResponse("fine")

    rules = [Rule("/", returning(*each), name=f"r{at}") for at, each in enumerate(listed)]
    app = RateLimitMiddleware(Starlette(routes=[Route("/", show)]), rules=rules, store=store)

    async def cancel() -> None:
        await cancelled(app, 0.3 + at, times)
        await asyncio.sleep(1)
        assert [await used(store, f"r{at}", *each) for at, each in enumerate(listed)] == [[1] * 45] * 3

    clock.run(cancel())
