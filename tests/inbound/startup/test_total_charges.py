"""Rules that charge one request more than one take may are refused when they are given."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Penalty, RateLimit, RateLimitMiddleware, RollingWindow, Rule, TokenBucket
from tests.support.asgi import ok

FINE = RollingWindow(1000, 3600, 900)  # which counts as 33


def rules(count: int, path: str = "/a", **options: Any) -> list[Rule]:
    return [Rule(path.format(number), "9/s", name=f"rule {number}", **options) for number in range(count)]


def quotas(count: int) -> list[TokenBucket]:
    return [TokenBucket(9, 1, name=f"quota {number}") for number in range(count)]


@pytest.mark.parametrize(
    ("quota", "given", "message"),
    [
        (None, rules(51), "'rule 0', 'rule 1', .* and 46 more come to 51 charges for GET /a;"),
        (None, rules(26, penalty=Penalty(10)), "come to 52 charges for GET /a;"),
        ("9/s", rules(50), "'default', 'rule 0', .* come to 51 charges"),
        (FINE, [Rule("/a", FINE, name="a")], "at most 50 .*: 'default', 'a' come to 66 charges for GET /a; use fewer"),
        (None, [Rule("/{x}", FINE, name="x"), Rule("/a", FINE, name="a")], "'x', 'a' come to 66 charges for GET /a;"),
        (None, [Rule("/{n:int}", FINE), Rule("/{x}", FINE)], "for GET /1;"),
        (None, [Rule("/a", FINE, methods=["POST"]), Rule("/{x}", FINE)], "for POST /a;"),
        (None, [Rule("/a", "9/s", messages=FINE), Rule("/{x}", "9/s", messages=FINE)], "for each message"),
    ],
)
def test_rules_that_meet_at_a_path_are_refused(quota: Any, given: list[Rule], message: str) -> None:
    """The error names the rules, what they come to, and a request that meets them."""
    with pytest.raises(ConfigurationError, match=message):
        RateLimitMiddleware(ok, quota, rules=given)


def test_the_penalty_of_the_own_quota_counts() -> None:
    """50 quotas and a penalty are more than one take may charge."""
    with pytest.raises(ConfigurationError, match="'default' come to 51 charges for each request"):
        RateLimitMiddleware(ok, quotas(50), penalty=Penalty(10))


@pytest.mark.parametrize(
    "given",
    [
        rules(50),
        rules(200, "/{{x}}/{}"),
        rules(60, shadow=True),
        [Rule("/a", FINE, methods=["POST"]), Rule("/a", FINE, methods=["GET"])],
        [Rule("/a", FINE, only=True), Rule("/{x}", FINE)],
        [Rule("/a", FINE, name="same"), Rule("/{x}", FINE, name="same")],
        [Rule("/a", lambda request: FINE), Rule("/{x}", FINE)],
    ],
    ids=["fifty", "paths", "shadow", "methods", "only", "one name", "function"],
)
def test_rules_that_fit_are_accepted(given: list[Rule]) -> None:
    """Those of other paths and methods, of one name, in shadow, beside one that decides alone, or of functions."""
    assert len(RateLimitMiddleware(ok, rules=given).rule_table.declared) == len(given)


def test_limits_together_are_refused() -> None:
    """Where they are put together, with and without names; those that fit are not."""
    for options in ({}, {"penalty": Penalty(10)}):
        count = 51 if not options else 26
        with pytest.raises(ConfigurationError, match=f"come to {count * (1 + len(options))} charges"):
            RateLimit.together(*[RateLimit("9/s", **options) for _ in range(count)])
        with pytest.raises(ConfigurationError, match=r"'d0', 'd1', .* come to"):
            RateLimit.together(*[RateLimit("9/s", name=f"d{number}", **options) for number in range(count)])
        RateLimit.together(*[RateLimit("9/s", **options) for _ in range(count - 1)])
    with pytest.raises(ConfigurationError, match="come to 51 charges"):
        RateLimit(quotas(50), penalty=Penalty(10))
