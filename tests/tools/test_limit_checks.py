"""Mistakes in valid limits."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from asgi_ratelimit import RateLimitMiddleware, Rule, parse_quotas
from asgi_ratelimit.keys import header
from asgi_ratelimit.tools.coverage import findings, rules_of
from tests.support.asgi import ok


def test_a_cost_that_never_passes() -> None:
    """It is more than the quota ever gives at once; one that just passes is fine."""
    (finding,) = findings([*parse_quotas("2/s; 100/minute")], 3)
    assert finding == "a cost of 3 never passes '2/second', which gives at most 2 at once"
    assert list(findings(parse_quotas("10/s burst 20; 1000/hour"), 20)) == []


def test_an_app_that_limits_nothing() -> None:
    """Its middleware has no quota, no rules, and no dependencies within it."""
    unlimited = Middleware(RateLimitMiddleware, name="a")
    rules, (finding,) = rules_of(an_app(unlimited))
    assert rules == []
    assert finding.endswith('no route has a RateLimit: nothing is limited: quota="100/minute"')
    limiting = Middleware(RateLimitMiddleware, "5/minute", name="b")
    assert rules_of(an_app(unlimited, limiting))[1] == rules_of(an_app(limiting, unlimited))[1] == []


@pytest.mark.parametrize(
    "options",
    [
        {"rules": [Rule("/", "5/minute", key=header("x-api-key"), only=True)]},
        {"quota": "5/s", "key": header("x-api-key")},
    ],
    ids=["a rule that decides alone", "all"],
)
def test_limits_that_a_client_evades(options: dict[str, Any]) -> None:
    """None of them has a key where the client sends no header."""
    _, (finding,) = rules_of(an_app(Middleware(RateLimitMiddleware, name="a", **options)))
    assert finding.startswith("clients who leave out or invent header('x-api-key'), as of 'a")


def an_app(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/", ok)], middleware=middleware)
