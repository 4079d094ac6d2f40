"""Quotas that never decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from asgi_ratelimit import Quota, RateLimitMiddleware, Rule, parse_quotas
from asgi_ratelimit.keys import header
from asgi_ratelimit.tools.coverage import dominates, findings, rules_of
from tests.support.asgi import ok
from tests.support.replaying import admitted_at


def quota(text: str) -> Quota:
    """One quota."""
    (each,) = parse_quotas(text)
    return each


@pytest.mark.parametrize(
    ("strict", "other"),
    [
        ("100/minute", "200/minute"),
        ("1/s burst 5", "60/minute burst 5"),
        ("5/minute rolling", "5/minute"),
        ("5/minute fixed", "10/minute"),
        ("10/minute fixed", "600/hour fixed"),
        ("10/hour fixed", "10/minute fixed"),
        ("1/s burst 5", "3605/hour fixed"),
        ("5/minute rolling", "20/3 minutes rolling"),
        ("5/s", "1000/minute rolling"),
    ],
)
def test_one_is_always_stricter(strict: str, other: str) -> None:
    """And not the other way round, unless both are alike."""
    assert dominates(quota(strict), quota(other))
    assert strict == "1/s burst 5" or not dominates(quota(other), quota(strict))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10/s", "100/minute"),
        ("10/minute fixed", "10/minute rolling"),
        ("10/minute", "10/minute rolling"),
        ("1/s burst 9", "1/s"),
        ("5/minute fixed", "5/minute"),
        ("10 per 10 s fixed", "20 per 15 s rolling"),
    ],
)
def test_both_decide(one: str, other: str) -> None:
    """Each at its own time."""
    assert not dominates(quota(one), quota(other))


def quotas() -> st.SearchStrategy[Quota]:
    """Small quotas of all kinds."""
    limits, periods = st.integers(1, 12), st.sampled_from(["s", "2 s", "3 s", "5 s", "10 s", "minute"])
    kinds = st.sampled_from(["", " burst 1", " burst 3", " burst 20", " fixed", " rolling", " rolling 2"])
    return st.builds(lambda limit, period, kind: quota(f"{limit} per {period}{kind}"), limits, periods, kinds)


@given(quotas(), quotas(), st.lists(st.integers(0, 4_000_000), min_size=1, max_size=60))
def test_what_never_decides_never_refuses(strict: Quota, other: Quota, gaps: list[int]) -> None:
    """Whatever comes when: without it, the same requests pass."""
    if dominates(strict, other):
        times, other = list(_sums(gaps)), replace(other, name="other")
        assert admitted_at([strict, other], times) == admitted_at([strict], times)


def _sums(gaps: list[int]) -> Iterator[float]:
    time_us = 1_800_000_000_000_000
    for gap in gaps:
        time_us += gap
        yield time_us / 1e6


def test_an_app_that_limits_nothing() -> None:
    """Its middleware has no quota, no rules, and no dependencies within it."""
    unlimited = Middleware(RateLimitMiddleware, name="a")
    rules, (finding,) = rules_of(an_app(unlimited))
    assert rules == []
    assert finding.endswith('no route has a RateLimit: nothing is limited: quota="100/minute"')
    limiting = Middleware(RateLimitMiddleware, "5/minute", name="b")
    assert rules_of(an_app(unlimited, limiting))[1] == rules_of(an_app(limiting, unlimited))[1] == []


def test_a_rule_that_a_client_evades() -> None:
    """It decides alone, and has no key where the client sends none."""
    evadable = Rule("/", "5/minute", key=header("x-api-key"), only=True)
    _, (finding,) = rules_of(an_app(Middleware(RateLimitMiddleware, rules=[evadable], name="a")))
    assert finding.endswith("give the middleware a quota by client_ip(), which applies as well")


def test_limits_that_a_client_evades() -> None:
    """None of them has a key where the client sends no header."""
    _, (finding,) = rules_of(an_app(Middleware(RateLimitMiddleware, "5/minute", key=header("x-api-key"), name="a")))
    assert finding.endswith('add one by address, Rule("/{path:path}", "300/minute", key=client_ip())')


def an_app(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/", ok)], middleware=middleware)


def test_of_two_that_are_alike_one_stays() -> None:
    """The first one is the one to keep."""
    alike = [quota("60/minute burst 5"), quota("1/s burst 5")]
    assert list(findings(alike)) == [
        "'1/second burst 5' never decides, because '60/minute burst 5' is always stricter: remove it"
    ]
