"""The headers of a charge that a store has taken, of which nobody has read a decision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import decision_of
from asgi_ratelimit.decision import Charge
from asgi_ratelimit.headers import QuotaHeaders, draft
from asgi_ratelimit.quotas import Quota, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.charges import on_bucket
from tests.support.strategies import quotas


@given(
    st.sampled_from([TokenBucket(10), TokenBucket(100, 60)]) | quotas("default"),
    st.sampled_from([1, 1, 2, 0.5]),
    st.lists(st.sampled_from([0.0, 0.01, 1.0, 1e6]), min_size=1, max_size=9),
)
def test_an_outcome_always_has_the_headers_of_its_decision(quota: Quota, cost: float, steps: list[float]) -> None:
    """Also the first one of a full bucket, whose headers are rendered once."""
    clock = SteppedClock()
    store, charge = MemoryStore(clock=clock), Charge(quota, "key", cost)
    for seconds in steps:
        clock.advance(seconds)
        outcome = store.submit_charge(*on_bucket(charge))
        assert list(QuotaHeaders(quota, quota.name).of_outcome(outcome)) == list(draft([decision_of(charge, outcome)]))
