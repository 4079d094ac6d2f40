"""The denial cache: it refuses what the store would refuse, with the same answer, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, Decision, FixedWindow, Limiter, MemoryStore, Quota, Take, TokenBucket
from asgi_ratelimit.background import run_in_place
from asgi_ratelimit.clock import time_of
from asgi_ratelimit.stores.redis.denials import LONGEST_US, MAX_DENIALS, Denials
from asgi_ratelimit.testing import SteppedClock
from tests.support import strategies
from tests.support.examples import up_to

SLOW = TokenBucket(10, 3600)  # a unit comes back in six minutes


class Front:
    """A store with a denial cache in front of it; its clock is ``ahead_us`` ahead of ours."""

    def __init__(self, ahead_us: int = 0) -> None:
        self.ours = SteppedClock()
        self.theirs = SteppedClock(self.ours.now + ahead_us / 1e6)
        self.store = MemoryStore(clock=self.theirs)
        self.denials = Denials(time_of(self.ours))
        self.trips = 0

    def wait(self, us: int) -> None:
        self.ours.advance(us / 1e6)
        self.theirs.advance(us / 1e6)

    def take(self, take: Take, there_us: int = 0, back_us: int = 0) -> Decision:
        """The decision of the cache, or else of the store, after a trip of these microseconds there and back."""
        found = self.denials.find(take)
        return self.go(take, there_us, back_us) if found is None else found

    def go(self, take: Take, there_us: int = 0, back_us: int = 0) -> Decision:
        """The decision of the store, which the cache notes."""
        self.trips += 1
        sent_us = self.denials.now_us()
        self.wait(there_us)
        (decision,) = self.store.take((take,))
        self.wait(back_us)
        if decision.allowed:
            self.denials.forget(take.charges)
        else:
            self.denials.note(decision, sent_us)
        return decision

    def peek(self, take: Take) -> Decision:
        return run_in_place(self.store.peek(take))


def one(quota: Quota, cost: float = 1, key: str = "key", max_wait: float = 0.0) -> Take:
    return Take((Charge(quota, key, cost),), max_wait)


@pytest.fixture
def front() -> Front:
    return Front()


def test_a_refusal_is_repeated_without_a_trip(front: Front) -> None:
    """With the decision of the store at that moment: ``retry_after`` goes down."""
    front.take(one(SLOW, 10))
    refused = front.take(one(SLOW))
    assert (refused.allowed, front.trips) == (False, 2)
    for _ in range(9):
        front.wait(100_000)
        again = front.take(one(SLOW))
        assert again == front.peek(one(SLOW))
    assert front.trips == 2
    assert again.retry_after == pytest.approx(refused.retry_after - 0.9)


def test_a_denial_ends_after_a_second(front: Front) -> None:
    """So a reset by another process, or a raised limit, takes effect."""
    front.take(one(SLOW, 10))
    front.take(one(SLOW))
    front.wait(int(LONGEST_US) - 1)
    assert front.denials.find(one(SLOW)) is not None
    front.wait(1)
    assert front.denials.find(one(SLOW)) is None


def test_a_reset_ends_all_refusals_of_a_bucket(front: Front) -> None:
    """Also one whose bucket another refusal has had since: a peek at a block, before it is lifted, for example."""
    shared, own = Charge(SLOW, "shared"), Charge(SLOW, "own")
    front.take(one(SLOW, 10, "shared"))
    both, alone = Take((own, shared)), Take((shared,))
    assert [front.take(both).allowed, front.take(alone).allowed] == [False, False]
    front.denials.forget([shared])
    assert front.denials.find(both) is None


def test_a_bounded_number_of_refusals_is_remembered(front: Front) -> None:
    """The oldest goes first."""
    refused = front.store.take((one(SLOW, 11),))[0]
    for number in range(MAX_DENIALS + 1):
        front.denials.note(replace(refused, take=one(SLOW, 11, f"key {number}")), front.denials.now_us())
    remembered = [front.denials.find(one(SLOW, 11, f"key {number}")) is not None for number in (0, 1, MAX_DENIALS)]
    assert remembered == [False, True, True]


def test_each_cost_has_its_own_retry_time(front: Front) -> None:
    """A larger take is refused for longer than the one that the store has refused, and one above the burst forever."""
    quota = TokenBucket(60, 3600, burst=20)
    front.take(one(quota, 20))
    decisions = [front.take(one(quota, cost)) for cost in (1, 5, 20, 21)]
    assert [decision.retry_after for decision in decisions] == [60, 300, 1200, math.inf]
    assert front.trips == 2
    assert front.take(one(quota, 21, max_wait=900)).retry_after == 300
    front.wait(500_000)
    for cost in (1, 5, 20, 21):
        assert front.take(one(quota, cost)) == front.peek(one(quota, cost))
    assert front.trips == 2


# Always and never

COSTS = st.sampled_from([1.0, 2.0, 5.0, 0.5])
LATENCIES_US = st.sampled_from([0, 1, 500, 20_000, 300_000])
MAX_WAITS = st.sampled_from([0.0, 0.0, 0.05, 10.0])


@st.composite
def floods(draw: st.DrawFn) -> Iterator[tuple[int, Take, int, int]]:
    """Takes on one or both of two buckets, each some time after the other, with a trip there and back."""
    quotas = [draw(strategies.quotas("one")), draw(strategies.quotas("two"))]
    steps = strategies.steps_us(quotas[0])
    chosen = st.sampled_from([quotas, quotas[:1], quotas[1:], quotas[::-1]])
    flood = []
    for _ in range(draw(st.integers(1, 40))):
        charges = tuple(Charge(quota, "key", draw(COSTS)) for quota in draw(chosen))
        flood.append((draw(steps), Take(charges, draw(MAX_WAITS)), draw(LATENCIES_US), draw(LATENCIES_US)))
    return iter(flood)


@up_to(200)
@given(floods(), st.integers(-(10**12), 10**12))
def test_it_never_refuses_what_a_store_would_allow(flood: Iterator[tuple[int, Take, int, int]], ahead_us: int) -> None:
    """However long the trips take, and whatever the time on the store's clock."""
    front = Front(ahead_us)
    for step, take, there_us, back_us in flood:
        front.wait(step)
        denied = front.denials.find(take)
        if denied is not None:
            decision = front.peek(take)
            assert not decision.allowed
            assert denied.retry_after <= decision.retry_after
        else:
            front.go(take, there_us, back_us)


@pytest.mark.anyio
async def test_a_slot_that_is_free_again_is_not_refused_when_it_comes(front: Front) -> None:
    """It opens and closes in less time than a trip to the store takes: from when it opens on, the store is asked."""
    quota = FixedWindow(1, 0.05)
    limiter, take = Limiter(quota, store=front.store, name="ahead"), Take((Charge(quota, "key", name="ahead"),))
    front.denials.note(front.store.take((take,))[0], front.denials.now_us())
    sent = front.denials.now_us()
    front.wait(60_000)
    booked = [await limiter.pace("key") for _ in range(5)]
    await limiter.cancel(booked[-2])
    refusal = front.store.take((take,))[0]
    front.denials.note(refusal, sent)
    refused, opened = 0, 0
    for _ in range(400):
        front.wait(1_000)
        found, is_free = front.denials.find(take), (await front.store.peek(take)).allowed
        opened += is_free
        refused += found is not None
        assert not (is_free and found is not None)
    assert opened > 0 < refused
