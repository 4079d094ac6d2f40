"""Charges, takes, decisions and settlements: what a store takes, and what it answers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Limiter, Rule
from asgi_ratelimit.decision import Charge, Decision, Take, checked_actual, checked_cost
from asgi_ratelimit.quota_text import as_quotas
from asgi_ratelimit.quotas import MAX_CHARGES, FixedWindow, RollingWindow, TokenBucket
from tests.support.decisions import decided
from tests.support.names import named

QUOTA = TokenBucket(10)
OTHER = TokenBucket(10, 60)


@pytest.mark.parametrize("cost", [1, 1.0, 0.001, 5e-324, 2**53, 10_000])
def test_a_cost_is_a_finite_number_above_0(cost: float) -> None:
    """Fractions and large numbers are costs, too."""
    assert checked_cost(cost) == Charge(QUOTA, "key", cost).cost == cost


@pytest.mark.parametrize("key", [7, None, b"alice", ["alice"]], ids=repr)
def test_the_key_of_a_charge_is_text(key: Any) -> None:
    """Anything else raises ``TypeError`` that quotes it and shows a valid one."""
    with pytest.raises(TypeError, match=re.escape(f"the key of a charge is a str, not {key!r}: Charge(quota, str(")):
        Charge(QUOTA, key)


@pytest.mark.parametrize("quota", ["5/s", None, (QUOTA,)], ids=repr)
def test_the_quota_of_a_charge_is_one_quota(quota: Any) -> None:
    """A text may be several quotas."""
    with pytest.raises(TypeError, match=re.escape(f"the quota of a charge is one quota, not {quota!r}: Charge(Token")):
        Charge(quota, "key")


@pytest.mark.parametrize(
    ("cost", "units"),
    [(Decimal("0.1"), 0.1), (Fraction(3, 2), 1.5), (Fraction(2**53), 2.0**53), (True, 1.0)],
    ids=named,
)
def test_other_kinds_of_numbers_are_converted_once(cost: Any, units: float) -> None:
    """So that a store meets nothing but ``int`` and ``float``; an actual cost may be 0."""
    converted = [checked_cost(cost), checked_actual(cost), Charge(QUOTA, "key", cost).cost]
    assert [(type(each), each) for each in converted] == [(float, units)] * 3


WRONG_NUMBERS = [Decimal("NaN"), Decimal("Infinity"), Decimal(-1), Fraction(-1, 2)]
WRONG_COSTS = [0, -1, 0.0, -0.0, -0.5, math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, "1", b"1", None, [1], 1j]
WRONG_COSTS += [Decimal(0), False, *WRONG_NUMBERS]


@pytest.mark.parametrize("cost", WRONG_COSTS, ids=named)
def test_anything_else_is_no_cost(cost: Any) -> None:
    """It raises a plain ``ValueError`` that quotes it and shows a valid one."""
    with pytest.raises(ValueError, match=r"cost must be a finite number above 0.*cost=1") as raised:
        Charge(QUOTA, "key", cost)
    assert repr(cost) in str(raised.value)
    assert type(raised.value) is ValueError


@pytest.mark.parametrize(
    ("max_wait", "max_wait_us"),
    [(0, 0), (0.0, 0), (1, 1e6), (2.5, 2.5e6), (1e-7, 0), (1.9e-6, 1), (math.inf, math.inf), (10**400, math.inf)],
)
def test_a_wait_is_whole_microseconds_rounded_down(max_wait: float, max_wait_us: float) -> None:
    """Nobody waits longer than requested."""
    assert Take((Charge(QUOTA, "key"),), max_wait).max_wait_us == max_wait_us


@pytest.mark.parametrize("max_wait", [-1, -1e-9, math.nan, -math.inf, "2.5", None, [1], True], ids=repr)
def test_a_wait_is_a_number_from_0_up(max_wait: Any) -> None:
    """Anything else raises ``ConfigurationError`` that quotes it."""
    with pytest.raises(ConfigurationError, match="max_wait must be seconds from 0 up") as raised:
        Take((Charge(QUOTA, "key"),), max_wait)
    assert repr(max_wait) in str(raised.value)


def test_a_take_needs_a_charge() -> None:
    """There is nothing to decide without one."""
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


def test_a_take_is_bounded() -> None:
    """Deciding one take must not hold a store for long: its charges and the parts of its windows are limited."""
    charges = tuple([Charge(QUOTA, str(number)) for number in range(MAX_CHARGES)])
    assert Take(charges).charges == charges
    with pytest.raises(ConfigurationError, match=f"at most {MAX_CHARGES} charges.*not 51: take fewer together"):
        Take((*charges, Charge(QUOTA, "one more")))
    for quota, most, weight in [
        (FixedWindow(10, 60), 50, 51),
        (RollingWindow(10, 60), 10, 55),
        (RollingWindow(10, 60, 240), 4, 55),
        (RollingWindow(10, 6000, 1000), 1, 74),
    ]:
        wide = tuple([Charge(quota, str(number)) for number in range(most + 1)])
        assert len(Take(wide[:most]).charges) == most
        with pytest.raises(ConfigurationError, match=f"not {weight}: take fewer together, or use fewer buckets"):
            Take(wide)


def test_quotas_that_one_take_cannot_charge_are_refused() -> None:
    """Where they are given, as in a limiter or a rule, and not at the first request."""
    wide = [RollingWindow(100, 1000, 1000, name=f"rolling {number}") for number in range(2)]
    assert as_quotas(wide[:1]) == tuple(wide[:1])
    for build in (as_quotas, Limiter, partial(Rule, "/")):
        with pytest.raises(ConfigurationError, match=r"at most 50 charges.*not 74: .*RollingWindow\(1000, 3600, 60\)"):
            build(wide)


NOW = 1_800_000_000_250_000.0
DECISION = decided(Take((Charge(QUOTA, "key", 2.5), Charge(OTHER, "key"))), NOW)
REFUSAL = decided(Take((Charge(QUOTA, "key", 11),)), NOW)


@pytest.mark.parametrize("decision", [DECISION, REFUSAL], ids=["allowed", "refused"])
def test_a_decision_can_be_written_as_json(decision: Decision) -> None:
    """All that it holds is numbers and texts, as a log wants them."""
    written = json.dumps(asdict(decision))
    assert json.loads(written)["allowed"] is decision.allowed


@pytest.mark.parametrize(
    ("decision", "answers"),
    [
        (DECISION, {"granted": 2.5, "delay": 0.0, "retry_after": 0.0, "quota": QUOTA, "remaining": 7}),
        (DECISION, {"reset_after": 0.25, "ready_at": 1_800_000_000.25, "charges": DECISION.take.charges}),
        (REFUSAL, {"granted": 0, "delay": 0.0, "retry_after": math.inf, "remaining": 10, "reset_after": 0.0}),
        (decided(Take((Charge(TokenBucket(2, 60, 1), "key", 2),), math.inf), NOW), {"delay": 0.0, "remaining": 0}),
    ],
)
def test_a_decision_answers_what_headers_logs_and_callers_ask(decision: Decision, answers: dict[str, Any]) -> None:
    """All of it is worked out from the states when it is read; a cost above the burst goes from a full bucket."""
    assert {name: getattr(decision, name) for name in answers} == answers
    assert bool(decision) is decision.allowed


def test_the_binding_quota_refuses_for_the_longest_time_or_has_the_least_left() -> None:
    """Headers show its numbers."""
    charges = (Charge(TokenBucket(5, 60, name="five"), "key"), Charge(TokenBucket(3, 60, name="three"), "key"))
    allowed = decided(Take(charges), NOW)
    assert [(state.quota.name, state.remaining) for state in allowed.states] == [("five", 4), ("three", 2)]
    assert (allowed.quota.name, allowed.remaining) == ("three", 2)
    used_up = decided(Take(tuple([replace(charge, cost=charge.quota.limit) for charge in charges])), NOW)
    refused = decided(Take(charges), NOW, used_up.stored)
    assert [state.retry_after for state in refused.states] == [12, 20]
    assert (refused.quota.name, refused.retry_after) == ("three", 20)


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (DECISION, "allowed: 7 of 10 units of per-second are left, one more in 0.05 s"),
        (REFUSAL, "refused: 10 of 10 units of per-second are left, and the same cost passes never"),
        (replace(REFUSAL, degraded=True), "refused, without the store: " + REFUSAL.reason.partition(": ")[2]),
    ],
)
def test_a_decision_says_why(decision: Decision, reason: str) -> None:
    """In one sentence."""
    assert decision.reason == reason
