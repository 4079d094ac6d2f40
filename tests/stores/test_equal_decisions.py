"""The memory store is the reference: whatever happens, Redis gives equal decisions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.stores.operations import settled_as
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to
from tests.support.histories import states_before
from tests.support.redis_server import RedisServer
from tests.support.strategies import WAITS, costs, quotas, token_buckets


@dataclass(frozen=True)
class Op:
    """A verb, some microseconds after the last one, and its takes: (charges, longest wait); or what is settled."""

    verb: str
    step_us: int
    takes: Sequence[tuple[Sequence[tuple[int, str, float]], float]]
    settled: int
    share: float
    may_settle: bool


History: TypeAlias = tuple[Sequence[Quota], Sequence[Op]]
VERBS = st.sampled_from(["take", "take", "take", "operation", "best effort", "peek", "settle", "settle", "reset"])
SHARES = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 2.5])


@st.composite
def histories(
    draw: st.DrawFn,
    kinds: Callable[[str], st.SearchStrategy[Quota]] = quotas,
    units: st.SearchStrategy[float] = costs(5.0),  # noqa: B008  # a strategy is a value
) -> History:
    """Quotas of all kinds, some of which share a name, and operations on a store that has them."""
    pool = [draw(kinds(name)) for name in "aab"]
    charge = st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from(["x", "y"]), units)
    charges = st.lists(charge, min_size=1, max_size=3, unique_by=lambda each: (pool[each[0]].name, each[1]))
    takes = st.lists(st.tuples(charges, WAITS), min_size=1, max_size=3)
    period = round(pool[0].period_us)
    step = st.integers(0, period) | st.just(0) | st.integers(-2 * period, 0) | st.sampled_from([period, -(10**11)])
    ops = st.builds(Op, VERBS, step, takes, st.integers(0, 20), SHARES, st.sampled_from([True, True, False]))
    return pool, draw(st.lists(ops, min_size=1, max_size=25))


YEAR = 31_536_000.0
"""Operations are remembered for so long: a store may forget one at once when its clock jumps ahead."""


class BothStores:
    """A memory store and a Redis store on one clock, and the loop on which both get the same calls."""

    def __init__(self, url: str) -> None:
        self.clock = SteppedClock()
        self.runner = asyncio.Runner()
        self.remote = RedisStore(url, clock=self.clock, timeout=30, on_error="deny", operation_ttl=YEAR)
        self.names = map("history {}".format, count())

    def run(self, history: History) -> None:
        self.runner.run(self._run(*history))

    async def _run(self, pool: Sequence[Quota], ops: Sequence[Op]) -> None:
        local = MemoryStore(clock=self.clock, operation_ttl=YEAR)
        name, granted = next(self.names), []
        self.clock.move_to(1_800_000_000)
        for op in ops:
            self.clock.advance(op.step_us / 1e6)
            if op.verb == "settle":
                await settle(granted[op.settled % len(granted)] if granted else (), op.share)
                continue
            takes = [take_of(pool, name, op, charges, wait) for charges, wait in op.takes]
            if op.verb == "operation":
                takes = [replace(take, operation=str(op.settled % 3)) for take in takes]
            ours, theirs = await answer(local, op.verb, takes), await answer(self.remote, op.verb, takes)
            assert ours == theirs
            assert list(map(states_before, ours)) == list(map(states_before, theirs))
            if op.verb != "peek":
                granted += pairs(local, self.remote, ours, theirs)

    def close(self) -> None:
        self.runner.run(self.remote.aclose())
        self.runner.close()


Booked: TypeAlias = tuple[tuple[Store, Decision], ...]


def pairs(local: Store, remote: Store, ours: list[Decision], theirs: list[Decision]) -> list[Booked]:
    """The allowed decisions of both stores, pair by pair."""
    return [((local, one), (remote, other)) for one, other in zip(ours, theirs) if one.allowed]


def take_of(pool: Sequence[Quota], name: str, op: Op, charges: Sequence[tuple[int, str, float]], wait: float) -> Take:
    if op.verb == "best effort":
        cost = charges[0][2] or 1.0
        booked = tuple(Charge(pool[n], key, cost, name) for n, key, _ in charges)
        return Take(booked, 0.0, best_effort=True, may_settle=op.may_settle)
    booked = tuple(charge_of(pool[n], key, cost, name) for n, key, cost in charges)
    return Take(booked, wait, may_settle=op.may_settle)


def charge_of(quota: Quota, key: str, cost: float, name: str) -> Charge:
    return Charge(quota, key, cost, name) if cost else Condition(quota, key, name=name)


async def answer(store: Store, verb: str, takes: list[Take]) -> list[Decision]:
    if verb == "peek":
        return [await store.peek(take) for take in takes]
    if verb == "reset":
        await store.reset(takes[0].charges)
        return []
    return await store.take(takes)


async def settle(booked: Booked, share: float) -> None:
    """Settle a decision in both stores, at a share of what it was granted."""
    for store, decision in booked:
        charged = [decision.granted if decision.take.best_effort else c.cost for c in decision.take.charges]
        settlement = settled_as(decision, [cost * share for cost in charged])
        if settlement:
            await store.settle(settlement)


@pytest.fixture(scope="module")
def both_stores(redis_server: RedisServer) -> Iterator[BothStores]:
    """One connection for all histories, whose buckets have different names."""
    made = BothStores(redis_server.url)
    yield made
    made.close()


@given(history=histories())
@up_to(200)
def test_all_stores_give_equal_decisions(both_stores: BothStores, history: History) -> None:
    """All kinds of quotas, both modes, settlements, resets, changed numbers, and a clock that also goes back."""
    both_stores.run(history)


@given(history=histories(token_buckets))
@up_to(200)
def test_all_stores_give_back_alike(both_stores: BothStores, history: History) -> None:
    """Token buckets alone: what is given back, what is recorded for that, and their versions."""
    both_stores.run(history)


VERSIONS: list[list[Quota]] = [
    [TokenBucket(limit, 10, burst, name="a") for limit, burst in [(10, 4), (3, 8), (10, 1)]],
    [FixedWindow(limit, 10, name="a") for limit in (10, 3, 1)],
    [RollingWindow(limit, 10, 5, name="a") for limit in (10, 3, 1)],
]


@st.composite
def histories_of_versions(draw: st.DrawFn) -> History:
    """Versions of one quota in turns on one bucket, which refuse and book ahead, and what is settled of that."""
    charge = st.tuples(st.sampled_from([0, 0, 1, 1, 2]), st.just("x"), st.sampled_from([0.5, 1.0, 3.0]))
    takes = st.tuples(st.tuples(charge), st.sampled_from([0.0, 0.0, math.inf]))
    step = st.sampled_from([0, 0, 2_000_000, 10_000_000, 12_000_000, -1_000_000])
    ops = st.builds(
        Op,
        st.sampled_from(["take"] * 3 + ["settle"]),
        step,
        st.tuples(takes),
        st.integers(0, 20),
        SHARES,
        st.just(True),
    )
    return draw(st.sampled_from(VERSIONS)), draw(st.lists(ops, min_size=5, max_size=40))


@given(history=histories_of_versions())
@up_to(160)
def test_all_stores_count_alike_for_versions(both_stores: BothStores, history: History) -> None:
    """What was used under any of them, and what is booked ahead."""
    both_stores.run(history)


@given(history=histories(units=st.just(0.0) | costs(5.0)))
@up_to(200)
def test_all_stores_wait_alike_for_conditions(both_stores: BothStores, history: History) -> None:
    """Takes some of whose charges cost nothing: they are waited for, and nothing is written."""
    both_stores.run(history)


@pytest.mark.long
@given(history=histories())
@settings(max_examples=10_000)
def test_all_stores_give_equal_decisions_for_long(both_stores: BothStores, history: History) -> None:
    """The same, over ten thousand histories."""
    both_stores.run(history)
