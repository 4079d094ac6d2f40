"""The rule table: one plan for each set of rules that match, however many paths and methods come."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Rule, client_ip
from asgi_ratelimit.inbound.plan import RuleTable
from asgi_ratelimit.inbound.rules import Defaults
from tests.support.asgi import http

RULES = (
    Rule("/users/{id}", "20/minute", name="users"),
    Rule("/users/{id}", "30/minute", name="posts", methods=["POST"]),
    Rule("/health", None),
    Rule("/tried", "40/minute", name="tried", shadow=True),
    Rule("/chat", None, messages="20/s", name="chat"),
    Rule("/alone", "50/minute", name="alone", only=True),
)


def table(*rules: Rule, own: Any = "10/minute") -> RuleTable:
    return RuleTable(own, rules, Defaults("own", client_ip()))


def names(table: RuleTable, path: str, method: str = "GET") -> list[str]:
    plan = table.plan_for(http(path, method=method))
    return [] if plan is None else [rule.name for rule in plan.rules]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", ["own"]),
        ("GET", "/users/7", ["own", "users"]),
        ("POST", "/users/7", ["own", "users", "posts"]),
        ("GET", "/health", []),
        ("GET", "/tried", ["own", "tried"]),
        ("GET", "/chat", ["chat"]),
        ("GET", "/alone", ["alone"]),
    ],
)
def test_the_rules_of_a_plan(method: str, path: str, expected: list[str]) -> None:
    """The own quota comes first, then the rules that match, in their order."""
    assert names(table(*RULES), path, method) == expected


def test_one_plan_for_each_set_of_rules() -> None:
    """Other paths and methods that meet the same rules have the very same plan."""
    several = table(*RULES)
    plans = [several.plan_for(http(f"/users/{number}")) for number in range(5)]
    assert len(set(map(id, plans))) == 1
    assert several.plan_for(http("/users/1", method="POST")) is not plans[0]
    assert several.plan_for(http("/")) is several.plan_for(http("/elsewhere"))


def test_without_rules_all_requests_have_one_plan() -> None:
    """It needs no look at the path, and there is none for a CORS preflight."""
    alone = table()
    assert alone.plan_for(http("/any")) is alone.plan_for(http("/")) is not None
    preflight = http(method="OPTIONS", headers=[(b"access-control-request-method", b"POST")])
    assert alone.plan_for(preflight) is None
    assert table(own=None).plan_for(http()) is None


def test_long_paths_are_not_remembered() -> None:
    """Nobody fills the memory with paths."""
    several = table(*RULES)
    tracemalloc.start()
    try:
        for number in range(30):
            path = f"/users/{number}{'x' * 1_000_000}"
            assert names(several, path) == ["own", "users"]
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_long_methods_are_not_remembered() -> None:
    """Nor with methods, which may be any token."""
    several = table(*RULES)
    tracemalloc.start()
    try:
        for number in range(30):
            several.plan_for(http("/users/1", method=f"{number}{'X' * 1_000_000}"))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_a_rule_exempts() -> None:
    """Only the first final rule counts, and only if it has no quota."""
    several = table(*RULES, Rule("/alone", None))
    assert several.exempts(http("/health"))
    assert not several.exempts(http("/alone"))
    assert not several.exempts(http("/"))


def test_an_error_names_the_rule() -> None:
    """Of many rules, the one that cannot be is quoted."""
    with pytest.raises(ConfigurationError) as raised:
        table(*RULES, Rule("users", "1/s"))
    assert raised.value.__notes__ == ["in Rule('users', '1/s')"]
