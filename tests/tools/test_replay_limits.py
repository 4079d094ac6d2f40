"""Limits that a log is replayed under, as texts."""

from __future__ import annotations

import pytest

from asgi_ratelimit import ConfigurationError, QuotaError, TokenBucket
from asgi_ratelimit.tools.replay import limits_of


def scope(method: str, path: str, key: str = "k") -> dict[str, object]:
    """A request as a log tells it."""
    return {"type": "http", "method": method, "path": path, "client": (key, 0), "headers": [], "root_path": ""}


def names(method: str, path: str, *texts: str, quota: str | None = None) -> list[str]:
    """The names of the rules for a request."""
    plan = limits_of(quota, texts).plan_for(scope(method, path))
    return [] if plan is None else [rule.name for rule in plan.rules]


def test_a_rule_is_a_path_and_a_quota() -> None:
    """With methods or without them, and with any text of a quota."""
    (rule,) = limits_of(None, ["POST,PUT /a/{id} 10/s burst 20; 100 per 15 minutes"]).charging
    assert rule.quota == (TokenBucket(10, burst=20), TokenBucket(100, 900))
    assert names("POST", "/a/7", "POST,PUT /a/{id} 5/s") == ["POST,PUT /a/{id}"]
    assert names("GET", "/a/7", "POST,PUT /a/{id} 5/s") == []
    assert names("GET", "/a", "/a 5/s", quota="9/s") == ["default", "/a"]
    assert names("GET", "/a", "/a exempt", quota="9/s") == []


@pytest.mark.parametrize("text", ["", "/a", "5/minute", "/a often", "POST /a 5/fortnight", "login 5/minute"])
def test_what_is_no_rule(text: str) -> None:
    """The error quotes it, and shows right ones."""
    with pytest.raises((ConfigurationError, QuotaError), match=r"/minute") as raised:
        limits_of(None, [text])
    assert repr(text) in str(raised.value)
