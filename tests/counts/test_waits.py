"""The histogram of waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.counts import BOUNDS_NS, WaitTimes

waits = st.lists(st.integers(0, 7_000_000_000), min_size=1)


def histogram(added: list[int]) -> WaitTimes:
    """A histogram of these waits."""
    times = WaitTimes()
    for wait_ns in added:
        times.add(wait_ns)
    return times


def test_nothing_was_waited_for() -> None:
    """Without waits, all is 0."""
    times = WaitTimes()
    assert (times.count, times.mean, times.quantile(0.99)) == (0, 0.0, 0.0)


@given(waits, st.floats(0.01, 1.0))
def test_a_quantile_is_within_the_part_of_the_exact_one(added: list[int], share: float) -> None:
    """It is never further from the exact quantile than the bounds around that."""
    exact = sorted(added)[math.ceil(share * len(added)) - 1]
    lower = max([bound for bound in BOUNDS_NS if bound <= exact], default=0)
    upper = min([bound for bound in BOUNDS_NS if bound > exact], default=BOUNDS_NS[-1])
    assert lower / 1e9 <= histogram(added).quantile(share) <= upper / 1e9


@given(waits, waits)
def test_histograms_add_up(one: list[int], other: list[int]) -> None:
    """The sum of two histograms is that of all their waits, and what came since an earlier copy can be told."""
    both = histogram(one)
    before = both.copy()
    both.add_all(histogram(other))
    assert both == histogram([*one, *other])
    assert both.since(before) == histogram(other)
    assert both.mean * both.count * 1e9 == pytest.approx(sum(one) + sum(other), abs=1e-3)
