"""Penalties: how long blocks last, and which arguments are valid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, Penalty


@given(st.floats(0.1, 1e6), st.floats(1, 1000), st.floats(0.1, 34_000_000), st.integers(0, 40), st.integers(1, 2))
def test_a_block_lasts_between_the_shortest_and_the_longest(
    shortest: float, growth: float, longest: float, earlier: int, more: int
) -> None:
    """Blocks never get shorter, and at most as long as ``longest``."""
    shortest, longest = sorted([shortest, longest])
    penalty = Penalty(shortest, growth=growth, longest=longest)
    seconds = penalty.seconds(earlier)
    assert shortest <= seconds <= longest
    assert penalty.seconds(earlier + more) >= seconds
    assert math.isfinite(seconds)


def test_a_first_block_may_be_longer_than_the_usual_longest() -> None:
    """Then no block is longer than that; but nobody may say that a shorter one is the longest."""
    assert Penalty("2 days", growth=2).seconds(5) == 2 * 86_400.0
    with pytest.raises(ConfigurationError, match="longest must be at least block_for, '10 minutes', not '1 s'"):
        Penalty("10 minutes", longest="1 s")


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_for": "ten minutes"},
        {"block_for": "10 fortnights"},
        {"block_for": ""},
        {"block_for": "10 minutes 5"},
        {"block_for": 0},
        {"block_for": -1},
        {"block_for": math.nan},
        {"block_for": math.inf},
        {"block_for": None},
        {"block_for": True},
        {"within": "soon"},
        {"longest": 0},
        {"after": 0},
        {"after": 1.5},
        {"after": "5"},
        {"growth": 0.5},
        {"growth": math.nan},
        {"growth": 1001},
    ],
    ids=repr,
)
def test_invalid_penalties_are_refused(wrong: dict[str, Any]) -> None:
    """When they are built; the error quotes the argument and shows a right one."""
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigurationError, match=f"{name}.*(10 minutes|after=5|growth=2)") as refused:
        Penalty(**{"block_for": "1 minute", **wrong})
    assert repr(value) in str(refused.value)
