"""The headers of a charge that a store has taken, of which nobody has read a decision."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import available, decision_of
from asgi_ratelimit.decision import Charge
from asgi_ratelimit.headers import QuotaHeaders, draft
from asgi_ratelimit.headers.header_rendering import header_step
from asgi_ratelimit.quotas import SECOND_US, Quota, TokenBucket
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
    """Also one whose headers were rendered for an earlier level."""
    clock = SteppedClock()
    store, charge, headers = MemoryStore(clock=clock), Charge(quota, "key", cost), QuotaHeaders(quota, quota.name)
    for seconds in steps:
        clock.advance(seconds)
        outcome = store.submit_charge(*on_bucket(charge))
        assert list(headers.of_outcome(outcome)) == list(draft([decision_of(charge, outcome)]))


WITH_STEPS = [
    TokenBucket(*numbers)
    for numbers in [(100, 3600.0), (5, 60.0), (7, 60.0), (100, 60.0, 20), (10,), (0.5,), (10, 1.0, 2.5), (3_000_000,)]
]


@given(st.sampled_from(WITH_STEPS), st.fractions(0, 1))
def test_within_a_step_of_the_level_the_headers_are_always_the_same(quota: TokenBucket, part: Fraction) -> None:
    """The numbers at a random level are those at the highest and the lowest level in its step."""
    step = header_step(quota)
    number = -float(math.floor(part * int(quota.burst_level))) // step
    lowest, highest = -(number + 1.0) * step, -number * step
    levels = [level for level in (lowest + 1.0, lowest + step // 2, highest) if 0.0 <= level <= quota.burst_level]
    numbers = [available(quota, level) for level in levels]
    assert all(-level // step == number for level in levels)
    assert len({(units, math.ceil(more_us / SECOND_US)) for units, more_us in numbers}) == 1


@pytest.mark.parametrize(
    ("quota", "step_us"),
    [
        (TokenBucket(100, 3600.0), 1e8),
        (TokenBucket(10), 1e6),
        (TokenBucket(1 / 3), 0.0),
        (TokenBucket(5000, 86_400.0), 0.0),
        (TokenBucket(10, burst=5, burst_allowance_factor=0.5), 0.0),
    ],
)
def test_the_step_is_as_long_as_the_numbers_allow(quota: TokenBucket, step_us: float) -> None:
    """0, so that nothing is stored by step, with numbers that are not whole, or with too many steps in a unit."""
    assert header_step(quota) == step_us
