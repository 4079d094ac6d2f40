"""``LearnedEstimate``: costs that follow what requests really cost."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.profiles import LearnedEstimate


def learned(estimate: Any, actual: list[Any], **options: Any) -> LearnedEstimate:
    """An estimate that has learned from requests, each its own group."""
    cost = LearnedEstimate(lambda request: estimate, **{"by": lambda request: request, **options})
    for units in actual:
        cost.learn("a", estimate, units)
    return cost


def test_the_formula() -> None:
    """The first ratios weigh 1/2, 1/3 and so on, down to the weight; the mean deviation is added."""
    assert learned(100, [20])("a") == pytest.approx(100 * (0.6 + 0.4))
    assert learned(100, [20, 20])("a") == pytest.approx(100 * (0.6 - 0.4 / 3 + 0.4))
    assert learned(100, [20, 20], deviations=0)("a") == pytest.approx(100 * (0.6 - 0.4 / 3))
    assert learned(100, [20], weight=1)("a") == pytest.approx(100 * (0.2 + 0.8))


def test_each_group_is_learned_apart() -> None:
    """One model says nothing about another."""
    cost = learned(100, [20] * 200)
    assert (round(cost("a")), cost("b")) == (20, 100)


def test_only_the_groups_learned_last_are_kept() -> None:
    """So memory is bounded, whatever the groups are."""
    cost = LearnedEstimate(lambda request: 100, by=lambda request: request, max_groups=2)
    for group in ("a", "b", "a", "c"):
        for _ in range(100):
            cost.learn(group, 100, 20)
    assert [round(cost(group)) for group in "abc"] == [20, 100, 20]


@pytest.mark.parametrize("actual", [{}, {"other": 5}, {"tokens": None}, math.nan, -1, "20"], ids=repr)
def test_what_is_no_cost_teaches_nothing(actual: Any) -> None:
    """The estimate stays as it is; a wrong number is an error."""
    cost = learned({"tokens": 100}, [])
    with nullcontext() if isinstance(actual, dict) else pytest.raises(ValueError, match=repr(actual)):
        cost.learn("a", 100, actual)
    assert cost("a") == {"tokens": 100}


@pytest.mark.parametrize("estimate", [math.nan, math.inf, -1, "100", None], ids=repr)
def test_an_estimate_that_is_no_cost(estimate: Any) -> None:
    """It is refused, and quoted."""
    with pytest.raises(ValueError, match=repr(estimate)):
        learned(estimate, [])("a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"estimate": 100},
        {"by": "model"},
        {"weight": 0},
        {"deviations": -1},
        {"max_groups": 0},
    ],
    ids=repr,
)
def test_arguments_are_checked_at_once(wrong: dict[str, Any]) -> None:
    """The error quotes the value, and shows a right one."""
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=rf"{name}.* not .*{wrong[name]!r}.*: LearnedEstimate\("):
        LearnedEstimate(**{"estimate": lambda request: 1, **wrong})


costs = st.floats(0, 2**53) | st.integers(0, 2**53)


@given(
    estimates=st.lists(costs, min_size=1, max_size=5),
    actual=st.lists(costs, max_size=20),
    weight=st.floats(0, 1, exclude_min=True),
    deviations=st.floats(0, 100),
)
def test_a_cost_is_always_one_that_can_be_charged(
    estimates: list[float], actual: list[float], weight: float, deviations: float
) -> None:
    """Never below 1 unit, never NaN, never above 2**53."""
    turns = iter(estimates * (len(actual) + 2))
    cost = LearnedEstimate(lambda request: next(turns), by=lambda request: None, weight=weight, deviations=deviations)
    for units in actual:
        cost.learn(None, 1, units)
    assert 1 <= cost(None) <= 2**53


def test_each_quota_is_learned_apart() -> None:
    """What an answer does not name keeps its estimate, exactly."""
    cost = learned({"requests": 1, "tokens": 100}, [{"tokens": 20}] * 200)("a")
    assert cost["requests"] == 1
    assert cost["tokens"] == pytest.approx(20, rel=0.01)
