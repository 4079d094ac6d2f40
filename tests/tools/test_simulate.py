"""What a quota does with requests, in rate limiting and in pacing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import MemoryStore, SyncLimiter, parse_quotas
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.simulate import simulate


def test_limiting_and_pacing() -> None:
    """Rate limiting refuses requests, pacing makes them wait."""
    quotas, times = parse_quotas("10/s burst 2"), [0.0, 0.0, 0.0, 0.05, 0.5]
    limited, paced = simulate(quotas, times), simulate(quotas, times, math.inf)
    assert limited.admitted_at == (0.0, 0.0, None, None, 0.5)
    assert (limited.admitted, limited.refused) == (3, 2)
    assert paced.admitted_at == pytest.approx((0.0, 0.0, 0.1, 0.2, 0.5))
    assert (paced.admitted, paced.refused) == (5, 0)


def test_waits() -> None:
    """The longest wait of 50 %, 90 %, 99 % and all of the requests."""
    simulation = simulate(parse_quotas("10/s burst 1"), [0.0] * 100, math.inf)
    assert simulation.quantiles() == pytest.approx((4.9, 8.9, 9.8, 9.9))
    assert all(math.isnan(wait) for wait in simulate(parse_quotas("1/s fixed"), [0.0], 0.0, cost=5).quantiles())


def test_the_longest_wait_and_the_cost() -> None:
    """Both are those of the take."""
    simulation = simulate(parse_quotas("10/s burst 1"), [0.0] * 5, 0.25)
    assert simulation.admitted_at == pytest.approx((0.0, 0.1, 0.2, None, None))
    assert simulate(parse_quotas("10/s burst 10"), [0.0] * 3, 0.0, cost=4).refused == 1


def test_the_busiest_second() -> None:
    """The most admitted requests in any interval of a second, its end excluded."""
    assert simulate(parse_quotas("10/s burst 10"), [0.0] * 20 + [0.5] * 20 + [1.0] * 20).busiest() == 15


@given(st.lists(st.integers(0, 5_000_000), max_size=50), st.sampled_from([0.0, 0.3, math.inf]))
def test_it_decides_as_a_limiter_does(times_us: list[int], max_delay: float) -> None:
    """A limiter decides the same on a clock with the same times."""
    clock = SteppedClock(0)
    limiter = SyncLimiter([TokenBucket(3, burst=2), TokenBucket(20, 10, name="b")], store=MemoryStore(clock=clock))
    times = sorted(time / 1e6 for time in times_us)
    admitted_at = []
    for time in times:
        clock.move_to(time)
        decision = limiter.pace("key", max_delay=max_delay)
        admitted_at.append(time + decision.delay if decision.allowed else None)
    assert simulate(limiter._limiter.quotas, times, max_delay).admitted_at == tuple(admitted_at)
