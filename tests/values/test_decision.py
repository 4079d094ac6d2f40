"""Charges, takes and decisions: what may be asked of a store, and what it answers."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Decision, QuotaState, Take, checked_cost, decided_at_once
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.quotas import TokenBucket

QUOTA = TokenBucket(10)
OTHER = TokenBucket(10, 60)


@pytest.mark.parametrize("cost", [1, 1.0, 0.001, 5e-324, 2**53, 10_000])
def test_a_cost_is_a_finite_number_above_0(cost: float) -> None:
    """Fractions and large numbers are costs, too."""
    assert checked_cost(cost) == Charge(QUOTA, "key", cost).cost == cost


WRONG_COSTS = [0, -1, 0.0, -0.0, -0.5, math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, "1", b"1", None, [1], 1j]


@pytest.mark.parametrize("cost", WRONG_COSTS, ids=repr)
def test_anything_else_is_no_cost(cost: Any) -> None:
    """It is refused by a plain ``ValueError`` that quotes it and shows a right one."""
    with pytest.raises(ValueError, match=r"cost must be a finite number above 0.*cost=1") as raised:
        Charge(QUOTA, "key", cost)
    assert repr(cost) in str(raised.value)
    assert type(raised.value) is ValueError


def test_a_charge_is_for_one_unit_of_its_takers_bucket() -> None:
    """... unless it says otherwise."""
    assert (Charge(QUOTA, "key").cost, Charge(QUOTA, "key").name) == (1, None)


@pytest.mark.parametrize(
    ("charge", "bucket"),
    [
        (Charge(QUOTA, "k"), ("default", "per-second", "k")),
        (Charge(QUOTA, "k", 5), ("default", "per-second", "k")),
        (Charge(OTHER, "k"), ("default", "per-minute", "k")),
        (Charge(QUOTA, "k", name="api"), ("api", "per-second", "k")),
        (Charge(QUOTA, ""), ("default", "per-second", "")),
    ],
    ids=repr,
)
def test_a_bucket_is_told_by_limiter_quota_and_key(charge: Charge, bucket: tuple[str, str, str]) -> None:
    """Neither the cost nor the numbers of the quota are a part of it."""
    assert charge.bucket == bucket


@pytest.mark.parametrize(
    ("max_wait", "max_wait_us"),
    [(0, 0), (0.0, 0), (1, 1e6), (2.5, 2.5e6), (1e-7, 0), (1.9e-6, 1), (math.inf, math.inf)],
)
def test_a_wait_is_whole_microseconds_rounded_down(max_wait: float, max_wait_us: float) -> None:
    """Nobody waits longer than they said."""
    assert Take((Charge(QUOTA, "key"),), max_wait).max_wait_us == max_wait_us


@given(st.integers(0, 400 * 86_400 * 10**6))
@example(249)
def test_a_wait_that_a_decision_names_is_kept(wait_us: int) -> None:
    """Whoever waits for as long as they were told to waits long enough: no microsecond is lost on the way."""
    assert Take((Charge(QUOTA, "key"),), wait_us / 1e6).max_wait_us == wait_us


@pytest.mark.parametrize("max_wait", [1e12, 1e300, 1.7e308])
def test_a_wait_may_be_as_long_as_one_likes(max_wait: float) -> None:
    """However long, it is a wait."""
    assert Take((Charge(QUOTA, "key"),), max_wait).max_wait_us >= 1e18


@pytest.mark.parametrize("max_wait", [-1, -1e-9, math.nan, -math.inf, "2.5", "", None, [1]], ids=repr)
def test_a_wait_is_a_number_from_0_up(max_wait: Any) -> None:
    """Anything else is refused by a plain ``ValueError`` that quotes it."""
    with pytest.raises(ValueError, match="max_wait must be seconds from 0 up") as raised:
        Take((Charge(QUOTA, "key"),), max_wait)
    assert repr(max_wait) in str(raised.value)


def test_a_take_needs_a_charge() -> None:
    """Nothing cannot be decided."""
    with pytest.raises(ConfigurationError, match="at least one charge"):
        Take(())


@pytest.mark.parametrize(
    "charges",
    [
        (Charge(QUOTA, "key"), Charge(QUOTA, "key")),
        (Charge(QUOTA, "key"), Charge(OTHER, "key"), Charge(TokenBucket(99), "key", 5)),
        (Charge(QUOTA, "key"), Charge(QUOTA, "key", name="default")),
    ],
)
def test_a_take_charges_a_bucket_once(charges: tuple[Charge, ...]) -> None:
    """Two charges on one bucket are one of their sum, and the error says so."""
    with pytest.raises(ConfigurationError, match="add their costs up"):
        Take(charges)


def test_a_take_may_charge_many_buckets() -> None:
    """Other quotas, other keys and other limiters are other buckets."""
    charges = (Charge(QUOTA, "a"), Charge(QUOTA, "b"), Charge(OTHER, "a"), Charge(QUOTA, "a", name="api"))
    assert Take(charges).charges == charges


@pytest.mark.parametrize("allowed", [True, False])
def test_what_is_decided_at_once_is_a_decision_like_any_other(allowed: bool) -> None:
    """What it leaves open follows from the rest: it equals one with all fields filled in, and can be copied."""
    take, now = Take((Charge(QUOTA, "key", 2.5),)), 1_800_000_000.25
    wait = 0.0 if allowed else 1.5
    state = QuotaState(QUOTA, allowed, 7, wait, 0.5, 0.25)
    granted = 2.5 if allowed else 0
    filled = Decision(allowed, granted, 0.0, wait, 7, 0.5, now + wait, QUOTA, (state,), take=take)
    filled.before, filled.now_us = [None], now * 1e6

    def at_once() -> Decision:
        return decided_at_once(allowed, take, (state,), [None], now * 1e6)

    names = [each.name for each in fields(Decision)]
    assert [getattr(at_once(), name) for name in names] == [getattr(filled, name) for name in names]
    assert (at_once(), repr(at_once())) == (filled, repr(filled))
    assert replace(at_once(), shadow=True) == replace(filled, shadow=True)
    assert pickle.loads(pickle.dumps(at_once())) == copy.copy(at_once()) == filled
    assert json.dumps(asdict(at_once())) == json.dumps(asdict(filled))
    with pytest.raises(AttributeError, match="'Decision' object has no attribute 'remainder'"):
        at_once().remainder  # type: ignore[attr-defined]  # noqa: B018
