"""Requests in flight, step by step: who holds a place, who waits for one, and what becomes of leases nobody renews."""

from __future__ import annotations

import math

import pytest

from asgi_ratelimit.algorithms import Booked
from asgi_ratelimit.algorithms.in_flight import InFlightState
from asgi_ratelimit.algorithms.take import decide, pack, read, reset_us, settle, unused
from asgi_ratelimit.quotas import LEASE_US, MOST_QUEUED, InFlight, TokenBucket
from tests.algorithms.charged import Charged

NOW, LATER = 1_800_000_000_000_000.0, 5_000_000.0
QUOTA = InFlight(2, retry_after=0.3)


def taken(state: InFlightState, now: float, max_wait: float = 0.0, cost: float = 1.0) -> tuple[float, InFlightState]:
    """The wait of one more, and the state that now holds."""
    wait, after = decide([Charged(QUOTA, cost)], [state], now, max_wait)
    return wait, after[0] if after else state  # type: ignore[return-value]  # it is of this quota


def state_of(*leases: float) -> InFlightState:
    """A state with these leases, by their ids, all of which began now."""
    return InFlightState(NOW, tuple([(lease, NOW + LEASE_US) for lease in leases]))


def ids(state: object) -> list[float]:
    """The leases of a state."""
    assert isinstance(state, InFlightState)
    return [lease for lease, _ in state.leases]


def renewed(state: InFlightState, lease: float, now: float, actual: float = 2.0) -> InFlightState:
    """The state after a lease was renewed: one that holds, or, with 3, one that waits."""
    return settle(QUOTA, state, now, Booked(0.0, lease, lease, 1.0), actual)  # type: ignore[return-value]  # as above


def test_the_queue_has_an_end() -> None:
    """So no state grows without bound; a caller that waits tries again."""
    state = state_of(*range(QUOTA.limit + MOST_QUEUED))
    assert decide([Charged(QUOTA, 1.0)], [state], NOW, 1e6) == (1_300_000.0, None)
    assert decide([Charged(QUOTA, 1.0)], [state], NOW, math.inf) == (math.inf, None)


def test_a_wait_is_one_for_all_charges_of_a_take() -> None:
    """A lease that is taken for a slot of another quota lasts from then on."""
    charges = [Charged(QUOTA, 1.0), Charged(TokenBucket(1, 60.0), 1.0)]
    states = decide(charges, [unused(each.quota, NOW) for each in charges], NOW, 0.0)[1]
    wait, after = decide(charges, states or [], NOW, math.inf)
    assert after is not None
    assert (wait, reset_us(QUOTA, after[0], NOW)) == (60e6, 60e6 + LEASE_US)


def test_a_lease_that_nobody_renews_ends() -> None:
    """And its id is never used again."""
    state = renewed(state_of(NOW, NOW + 1.0), NOW, NOW + LATER)
    assert LEASE_US - 1.0 < reset_us(QUOTA, state, NOW + LATER) <= LEASE_US
    _, state = taken(state, NOW + LEASE_US)
    assert ids(state) == [NOW, NOW + LEASE_US]


def test_a_renewal_puts_back_what_the_state_has_lost() -> None:
    """At its old place, once; who waits has lost its place instead, as others may hold by now."""
    assert ids(renewed(state_of(2, 4), 3, NOW)) == [2, 3, 4]
    assert ids(renewed(renewed(state_of(2, 4), 3, NOW), 3, NOW)) == [2, 3, 4]
    assert renewed(state_of(2, 4), 3, NOW, 3.0) == state_of(2, 4)
    assert renewed(state_of(2, 4), 4, NOW + LATER, 3.0).leases[1] == (4, NOW + LATER + LEASE_US / 2)


def test_another_limit_and_an_earlier_time_leave_the_leases() -> None:
    """With a lower limit, nobody is admitted until enough have ended; a lease ends no later than it would have."""
    state = state_of(NOW, NOW + 1.0)
    assert read(InFlight(1), pack(QUOTA, state), NOW) == state
    earlier = read(QUOTA, pack(QUOTA, state), NOW - LATER)
    assert ids(earlier) == ids(state)
    assert reset_us(QUOTA, earlier, NOW - LATER) == LEASE_US


@pytest.mark.parametrize("lease", [math.nan, 0.5, 2.0**64])
def test_leases_that_cannot_be_are_none(lease: float) -> None:
    """Whoever wrote them."""
    assert read(QUOTA, pack(QUOTA, state_of(lease)), NOW) == unused(QUOTA, NOW)
