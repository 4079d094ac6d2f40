"""Both stores answer alike: random histories, step by step, on a memory store and on a real Redis.

``python -m tests.stores.test_equal_histories redis://localhost 0 10000`` runs so many histories from the command line.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from asgi_ratelimit import FixedWindow, InFlight, Quota, RedisStore, RollingWindow, TokenBucket
from asgi_ratelimit.algorithms.in_flight import InFlightState
from asgi_ratelimit.algorithms.take import place_of
from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.stores import MemoryStore, Settlement, settle
from asgi_ratelimit.stores.base import booked_of
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import FACTOR

HISTORIES = 10_000 if FACTOR == 1.0 else round(2000 * FACTOR)
# How long both remember operations: Redis does so by its own clock, which nobody steps.
YEAR = 31_536_000
START = 1_800_000_000.123457
KEYS = ("ann", "bob")
PERIODS = (0.1, 1, 1, 10, 60)
LIMITS = (1, 2, 3, 5, 10, 7, 2.5, 10 / 3, 100)
BURSTS = (1, None, 2, 3, 5.5, 10)
FACTORS = (1.0, 1.0, 0.5, 1 / 3, 0.07)
COSTS = (1, 1, 1, 2, 3, 0.5, 0.1, 1 / 3, 2.5, 12, 1e-9)
WAITS = (0.0, 0.0, 0.0, 0.05, 1.0, 30.0, math.inf)
OPERATIONS = (None, None, None, "first", "second")


def random_quota(r: random.Random, name: str) -> Quota:
    """A quota of any kind, with numbers that are whole and numbers that are not."""
    kinds = ["bucket", "bucket", "fixed", "rolling", "in flight"]
    kind, limit, period = r.choice(kinds), r.choice(LIMITS), r.choice(PERIODS)
    if kind == "in flight":
        return InFlight(r.choice([1, 2, 3]), name, retry_after=r.choice([1.0, 0.3]))
    if kind == "bucket":
        return TokenBucket(limit, period, r.choice(BURSTS), r.choice(FACTORS), name)
    if kind == "fixed":
        return FixedWindow(limit, period, name)
    return RollingWindow(limit, period, r.choice([1, 2, 5, 10]), name)


@dataclass
class Both:
    """What the two stores have decided about one take."""

    here: Decision
    there: Decision


class History:
    """A random history on two stores with one clock. Each step requires that their answers are equal."""

    def __init__(self, seed: int, remote: RedisStore, clock: SteppedClock) -> None:
        self.r = r = random.Random(seed)
        self.clock, self.stores = clock, (MemoryStore(operation_ttl=YEAR, clock=clock), remote)
        self.quotas = [random_quota(r, f"quota {number}") for number in range(r.choice([1, 1, 2, 3]))]
        self.name = f"history {seed}"
        self.decided: list[Both] = []
        self.goes_back = r.random() < 0.2
        self.changes = r.random() < 0.3

    async def run(self) -> None:
        """Up to sixty steps."""
        r = self.r
        self.clock.move_to(START)
        steps = [self.take, self.take, self.take_several, self.peek, self.settle, self.settle, self.move, self.move]
        steps += [self.end_or_renew] * any(type(quota) is InFlight for quota in self.quotas)
        for _ in range(r.choice([10, 30, 60])):
            await r.choice([*steps, self.reset, self.change] if r.random() < 0.2 else steps)()

    def random_take(self) -> Take:
        """Some of the quotas, for one or two keys, in any mode."""
        r = self.r
        buckets = [(quota, key) for quota in self.quotas for key in KEYS]
        chosen = r.sample(buckets, r.choice([1, 1, 2, len(buckets)]))
        operation = r.choice(OPERATIONS)
        if r.random() < 0.2:
            cost = r.choice([1, 3, 5, 0.5, 100])
            charges = [Charge(quota, key, cost, self.name) for quota, key in chosen]
            return Take(tuple(charges), best_effort=True, operation=operation)
        charges = [Charge(quota, key, r.choice(COSTS), self.name) for quota, key in chosen]
        if operation is None and len(charges) > 1 and r.random() < 0.3:
            quota, key = chosen[-1]
            charges[-1] = Condition(quota, key, name=self.name)
        return Take(tuple(charges), r.choice(WAITS), operation=operation)

    async def take(self) -> None:
        """One take. One that was refused before is refused without Redis, at a time that is a lower bound.

        It then does not set the time anew where the clock went back, as a refusal of Redis does.
        """
        if self.goes_back:
            await self.take_several()
            return
        take = self.random_take()
        here, there = [(await store.take([take]))[0] for store in self.stores]
        if here.allowed:
            self.require_equal(here, there)
        else:
            assert (there.allowed, there.now_us, there.states) == (False, here.now_us, here.states)
            assert there.wait_us <= here.wait_us

    async def take_several(self) -> None:
        """A few takes in one call, each of which sees those before it."""
        takes = [self.random_take() for _ in range(self.r.choice([2, 2, 3]))]
        for here, there in zip(*[await store.take(takes) for store in self.stores]):
            self.require_equal(here, there)

    def require_equal(self, here: Decision, there: Decision) -> None:
        """All that a decision holds is equal, to the bit, and what is worked out from it."""
        assert here == there
        assert (here.repeated, bool(here.id)) == (there.repeated, bool(there.id))
        for name in ("allowed", "granted", "delay", "retry_after", "remaining", "reset_after", "ready_at", "states"):
            assert getattr(here, name) == getattr(there, name), name
        if here.allowed:
            self.decided.append(Both(here, there))

    async def peek(self) -> None:
        """What a take would be answered."""
        take = self.random_take()
        here, there = [await store.peek(take) for store in self.stores]
        assert here == there

    async def settle(self) -> None:
        """Cancel, give back, or debit what was decided, the latest or any other; some of it twice."""
        if not self.decided:
            return
        r = self.r
        number = r.choice([-1, r.randrange(len(self.decided))])
        both = self.decided[number] if r.random() < 0.2 else self.decided.pop(number)
        shares = [r.choice([0.0, 0.0, 0.5, r.random(), 1.0, 1.5, 4.0]) for _ in both.here.charges]
        actual = [charge.cost * share for charge, share in zip(both.here.charges, shares)]
        is_cancelled = r.random() < 0.3
        costs: Sequence[float] = [0.0] * len(actual) if is_cancelled else actual
        here = await settle(self.stores[0], both.here, costs)
        assert here == await settle(self.stores[1], both.there, costs)

    async def end_or_renew(self) -> None:
        """Some leases of a decision end, or are renewed, whether the state still has them or not."""
        if not self.decided:
            return
        decision = self.r.choice(self.decided).here
        settlements = []
        for charge, state in zip(decision.charges, decision.stored):
            if isinstance(state, InFlightState) and charge.cost:
                booked = booked_of(decision, charge, state)._replace(slot=place_of(charge.quota, state), cost=1.0)
                settlements.append(Settlement(charge, booked, self.r.choice([0.0, 2.0, 3.0]), 0))
        here, there = [await store.settle(settlements) for store in self.stores]
        assert here == there

    async def move(self) -> None:
        """The clock goes on, or back."""
        r = self.r
        quota = r.choice(self.quotas)
        unit, period = quota.period_us / quota.limit, quota.period_us
        on = r.choice([1, unit / 3, unit, 2.5 * unit, period, r.uniform(0, 2 * unit), 50 * unit])
        back = r.choice([1, unit / 2, 3 * unit, period, period + 1, 1e8])
        self.clock.advance(round(-back if self.goes_back and r.random() < 0.3 else on) / 1e6)

    async def reset(self) -> None:
        """A key is forgotten."""
        key = self.r.choice(KEYS)
        for store in self.stores:
            await store.reset([Charge(quota, key, 1, self.name) for quota in self.quotas])

    async def change(self) -> None:
        """The limits change."""
        if self.changes:
            self.quotas = [changed(self.r, quota) for quota in self.quotas]


def changed(r: random.Random, quota: Quota) -> Quota:
    """The quota with other numbers, and the same buckets."""
    limit = r.choice(LIMITS)
    if isinstance(quota, InFlight):
        return replace(quota, limit=r.choice([1, 2, 5]))
    if isinstance(quota, TokenBucket):
        return replace(quota, limit=limit, burst=r.choice([limit, 5.5, 1]) if limit >= 1 else 1)
    return replace(quota, limit=limit)


async def run_all(url: str, seeds: Sequence[int]) -> None:
    """Run the histories of these seeds on one connection."""
    clock = SteppedClock()
    remote = RedisStore(url, clock=clock, timeout=30, on_error="deny", operation_ttl=YEAR)
    try:
        for seed in seeds:
            try:
                await History(seed, remote, clock).run()
            except AssertionError as error:
                error.add_note(f"in the history of seed {seed}")
                raise
    finally:
        await remote.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("part", range(4))
async def test_memory_and_redis_decide_alike(redis_url: str, part: int) -> None:
    """Takes, peeks, operations, settlements, resets, clocks that go back and limits that change."""
    await run_all(redis_url, range(part, HISTORIES, 4))


if __name__ == "__main__":
    asyncio.run(run_all(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))))
