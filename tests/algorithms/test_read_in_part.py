"""Takes of many charges read few gaps, runs and parts of each bucket: on both stores the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import example, given

from asgi_ratelimit import FixedWindow
from asgi_ratelimit.algorithms import quota_kinds
from asgi_ratelimit.stores.redis.connection import script_calls
from tests.algorithms.test_histories import Equality
from tests.support.examples import up_to
from tests.support.histories import Advance, Pace, Plan, RateLimit, Stores, plans
from tests.support.redis_server import RedisServer

FEW = 6
PER_SECOND = [FixedWindow(2, 1, name="quota 0"), FixedWindow(2, 1, name="quota 1"), FixedWindow(3, 3, name="quota 2")]
BOOKED_AHEAD = [RateLimit("a", 1, True), RateLimit("a", 1, True), Pace("a", 1, None), Pace("a", 1, None)]


@pytest.fixture(scope="module")
def stores(redis_server: RedisServer) -> Iterator[Stores]:
    """Both stores, where all charges of a take read ``FEW`` pieces together."""
    limit = f"PIECES_OF_TAKE = {quota_kinds.PIECES_OF_TAKE}"
    assert limit in script_calls.SCRIPT
    script = script_calls.SCRIPT.replace(limit, f"PIECES_OF_TAKE = {FEW}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quota_kinds, "PIECES_OF_TAKE", FEW)
        patch.setattr(script_calls, "SCRIPT", script)
        patch.setattr(script_calls, "SCRIPT_SHA", hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())
        made = Stores(redis_server.url)
        yield made
        made.close()


@given(plan=plans(back=True))
@example(plan=Plan(1_800_000_000, PER_SECOND, [*BOOKED_AHEAD, RateLimit("a", 1), RateLimit("a", {"quota 0": 1})]))
@example(plan=Plan(1_800_000_000, PER_SECOND, [*BOOKED_AHEAD, Advance(-1_500_000), RateLimit("a", 1, True)]))
@up_to(200)
def test_both_stores_read_the_same(stores: Stores, plan: Plan) -> None:
    """Also of a refusal that is remembered, and where what is left out becomes one run with what is read."""
    stores.run(plan, Equality())
