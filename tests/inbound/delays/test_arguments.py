"""What is no delay, and no number of requests, is refused when a limit is built, and quoted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, RateLimit, RateLimitMiddleware, Rule
from tests.support.asgi import ok

PLACES: list[Callable[[Any], object]] = [
    lambda max_delay: RateLimitMiddleware(ok, "5/s", max_delay=max_delay),
    lambda max_delay: RateLimitMiddleware(ok, rules=[Rule("/", "5/s", max_delay=max_delay)]),
    lambda max_delay: RateLimit("5/s", max_delay=max_delay),
]


@pytest.mark.parametrize("build", PLACES, ids=["middleware", "rule", "dependency"])
@pytest.mark.parametrize("max_delay", [-1, -0.001, math.nan, math.inf, 10**400, "2", True, [2.0]])
def test_what_is_no_delay_is_refused(build: Callable[[Any], object], max_delay: Any) -> None:
    """In each place where it may be given; nobody waits for ever."""
    wrong = f"max_delay must be seconds from 0 to 400 days, not {max_delay!r}: max_delay=2.0"
    with pytest.raises(ConfigurationError, match=re.escape(wrong)):
        build(max_delay)


@pytest.mark.parametrize("build", PLACES, ids=["middleware", "rule", "dependency"])
@pytest.mark.parametrize("max_delay", [0, 0.0, 2, 2.5, Fraction(5, 2), 400 * 86_400])
def test_seconds_are_a_delay(build: Callable[[Any], object], max_delay: float) -> None:
    """Whole or not."""
    build(max_delay)


@pytest.mark.parametrize("max_waiting", [0, -1, 1.5, math.inf, "9", True, None])
def test_what_is_no_number_of_requests_is_refused(max_waiting: Any) -> None:
    """It is a whole number, and at least 1."""
    wrong = f"max_waiting must be a whole number of requests, at least 1, not {max_waiting!r}: max_waiting=1000"
    with pytest.raises(ConfigurationError, match=re.escape(wrong)):
        RateLimitMiddleware(ok, "5/s", max_waiting=max_waiting)
