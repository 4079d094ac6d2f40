"""``book`` of a memory store: a take of one charge that may wait, in fewer steps."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import decision_of_booking
from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, TokenBucket
from asgi_ratelimit.stores import MemoryStore, booker, settle
from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore
from tests.support.histories import states_before
from tests.support.strategies import costs, quotas, steps_us

INF = math.inf


def booked(store: MemoryStore, take: Take) -> Decision:
    """The decision of a take that is booked, or submitted where that is refused."""
    booking = store.book(take.charges[0], take.max_wait_us)
    return store.submit(take) if booking is None else decision_of_booking(take, booking)


@given(st.data())
def test_a_booking_is_decided_like_a_take_of_it(data: st.DataObject) -> None:
    """Whatever the quota, the costs and the waits, also where some are given back and the clock is set back."""
    quota, clock = data.draw(quotas("quota")), SteppedClock(1_800_000_000)
    one, other = MemoryStore(clock=clock), MemoryStore(clock=clock)
    steps = st.just(0) | steps_us(quota) | st.integers(-3 * round(quota.period_us), -1)
    waits = st.sampled_from([INF, INF, 0.0]) | st.floats(0.0, 3 * float(quota.period))
    for step_us in data.draw(st.lists(steps, min_size=1, max_size=15)):
        clock.advance(step_us / 1e6)
        charge = Charge(quota, "key", data.draw(costs(1.2 * quota.most)))
        take = Take((charge,), data.draw(waits))
        by_booking, by_take = booked(one, take), other.submit(take)
        assert by_booking == by_take
        assert (states_before(by_booking), by_booking.now_us) == (states_before(by_take), by_take.now_us)
        if data.draw(st.integers(0, 4)) == 0:
            for store, decision in ((one, by_booking), (other, by_take)):
                asyncio.run(settle(store, decision, [0.0]))
    assert one.submit(Take((charge,), INF)) == other.submit(Take((charge,), INF))


def test_evenly_spaced_slots_are_booked() -> None:
    """A queue of callers, without a decision of any."""
    store = MemoryStore(clock=SteppedClock(0))
    bookings = [store.book(Charge(TokenBucket(10, burst=1), "key"), INF) for _ in range(5)]
    assert [booking and booking[0] for booking in bookings] == [0.0, 1e5, 2e5, 3e5, 4e5]


@pytest.mark.parametrize(
    ("charge", "max_wait_us"),
    [
        (Charge(FixedWindow(1, 1), "key"), INF),
        (Charge(TokenBucket(10, burst=2, burst_allowance_factor=0.5), "key"), INF),
        (Charge(TokenBucket(10, burst=1), "key", 2), INF),
        (Charge(TokenBucket(10, burst=1), "key"), 99_999.0),
        (Condition(TokenBucket(10, burst=1), "key"), INF),
    ],
    ids=["a window", "a slow burst", "a cost above the burst", "a slot too far away", "a condition"],
)
def test_what_is_for_a_take_to_decide_is_not_booked(charge: Charge, max_wait_us: float) -> None:
    """And nothing is taken."""
    store = MemoryStore(clock=SteppedClock(0))
    store.submit(Take((Charge(charge.quota, "key", 1),)))
    states = store.state_of(charge)
    assert store.book(charge, max_wait_us) is None
    assert store.state_of(charge) == states


def test_a_full_store_books() -> None:
    """For a new key and for one that it has, and has as many keys as before."""
    store = MemoryStore(max_keys=8, clock=SteppedClock(0))
    quota: Quota = TokenBucket(10, burst=5)
    for number in range(20):
        assert store.book(Charge(quota, str(number)), INF) is not None
        assert store.book(Charge(quota, str(number)), INF) is not None
    assert len(store) == 8


def test_a_take_of_a_derived_class_is_not_bypassed() -> None:
    """Neither is its ``submit``, and a store elsewhere books nothing."""

    class Submitting(MemoryStore):
        def submit(self, take: Take) -> Decision:
            return super().submit(take)

    elsewhere = MemoryStore()
    elsewhere.in_process = False
    assert [booker(store) for store in (CountingStore(), Submitting(), elsewhere)] == [None] * 3
    assert booker(MemoryStore()) is not None
