"""A request whose take is split is charged all or nothing, on each store, whatever its rules are."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
)
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok
from tests.support.examples import up_to
from tests.support.split_takes import ADDRESS, returning

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
