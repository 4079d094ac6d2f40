"""``submit_charge`` of each store: a take of one charge without a wait, in fewer steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from inspect import isawaitable
from itertools import count
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import decision_of
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import Quota, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, settle
from asgi_ratelimit.testing import SteppedClock
from tests.support.charges import on_bucket
from tests.support.examples import up_to
from tests.support.histories import states_before
from tests.support.redis_server import RedisServer
from tests.support.strategies import costs, quotas, steps_us

Fast: TypeAlias = MemoryStore | RedisStore
Call: TypeAlias = tuple[int, float, float | None]


@st.composite
def calls(draw: st.DrawFn) -> tuple[Quota, Sequence[Call]]:
    """A quota, and takes of it: microseconds after the last one, a cost, and the share of it that is used, if less."""
    quota = draw(quotas("quota"))
    back = st.integers(-3 * round(quota.period_us), -1)
    used = st.sampled_from([None, None, 0.0, 0.5, 2.0])
    call = st.tuples(steps_us(quota) | steps_us(quota) | back, costs(1.2 * quota.most), used)
    return quota, draw(st.lists(call, min_size=1, max_size=15))


class Pairs:
    """Two stores of each kind on one clock: one is called by charge, the other by take."""

    def __init__(self, url: str) -> None:
        self.clock, self.runner = SteppedClock(), asyncio.Runner()
        self.remote = [RedisStore(url, clock=self.clock, timeout=30, on_error="deny", prefix=p) for p in ("a", "b")]
        self.names = map("history {}".format, count())

    def run(self, quota: Quota, history: Sequence[Call]) -> None:
        name = next(self.names)
        for stores in ([MemoryStore(clock=self.clock) for _ in range(2)], self.remote):
            self.clock.move_to(1_800_000_000)
            self.runner.run(self._run(stores, Charge(quota, "key", 1, name), history))

    async def _run(self, stores: Sequence[Fast], like: Charge, history: Sequence[Call]) -> None:
        by_charge, by_take = stores
        for step_us, cost, used in history:
            self.clock.advance(step_us / 1e6)
            charge = Charge(like.quota, like.key, cost, like.name)
            one, (other,) = await submitted(by_charge, charge), await by_take.take([Take((charge,))])
            assert (one, states_before(one), one.now_us) == (other, states_before(other), other.now_us)
            if used is not None:
                for store, decision in ((by_charge, one), (by_take, other)):
                    await settle(store, decision, [cost * used])

    def close(self) -> None:
        for store in self.remote:
            self.runner.run(store.aclose())
        self.runner.close()


async def submitted(store: Fast, charge: Charge) -> Decision:
    """The decision of a charge: the store gives an outcome, or the decision itself."""
    outcome = store.submit_charge(*on_bucket(charge))
    if isawaitable(outcome):
        outcome = await outcome
    return outcome if isinstance(outcome, Decision) else decision_of(charge, outcome)


@pytest.fixture(scope="module")
def pairs(redis_server: RedisServer) -> Iterator[Pairs]:
    made = Pairs(redis_server.url)
    yield made
    made.close()


@given(case=calls())
@up_to(200)
def test_a_charge_is_decided_like_a_take_of_it(pairs: Pairs, case: tuple[Quota, Sequence[Call]]) -> None:
    """All kinds of quotas, with settlements, and clocks that are set back: the same decisions, and the same states."""
    pairs.run(*case)


def test_an_outcome_is_no_decision() -> None:
    """The memory store builds no decision for a charge, allowed or refused: its outcome is a plain tuple."""
    store, charge = MemoryStore(clock=SteppedClock()), Charge(TokenBucket(1, 60), "key")
    outcomes = [store.submit_charge(*on_bucket(charge)) for _ in range(2)]
    assert [type(outcome) for outcome in outcomes] == [tuple, tuple]
    assert [decision_of(charge, outcome).allowed for outcome in outcomes] == [True, False]
