"""The breaker: when it opens, who tries, and when it closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.stores.redis.outage.breaker import PROBE_EVERY_US, Breaker
from asgi_ratelimit.testing import SteppedClock

PATIENCE_US = 250_000.0


class Tried:
    """A breaker on a clock that is stepped by hand."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.breaker = Breaker(self.clock.now_us, PATIENCE_US)

    def let_through(self, asking: int = 10) -> int:
        """How many of some callers at one moment may go to the store."""
        return sum(self.breaker.lets_through() for _ in range(asking))

    def wait(self, us: float) -> None:
        self.clock.advance(us / 1e6)


@pytest.fixture
def tried() -> Tried:
    return Tried()


def test_closed_lets_everybody_through(tried: Tried) -> None:
    """As long as nothing has failed."""
    assert not tried.breaker.is_open
    assert tried.let_through() == 10


def test_the_first_failure_opens_it(tried: Tried) -> None:
    """Nobody is let through before the next try is due."""
    tried.breaker.failed()
    assert tried.breaker.is_open
    assert tried.let_through() == 0
    tried.wait(PROBE_EVERY_US - 1)
    assert tried.let_through() == 0


def test_one_at_a_time_tries(tried: Tried) -> None:
    """The others do not wait for how it ends; after it has failed, the next try is due a while later."""
    tried.breaker.failed()
    for _ in range(3):
        tried.wait(PROBE_EVERY_US)
        assert tried.let_through() == 1
        tried.wait(PROBE_EVERY_US)
        assert tried.let_through() == 0
        tried.breaker.failed()
        assert tried.let_through() == 0


def test_a_try_that_has_no_end_is_given_up(tried: Tried) -> None:
    """Its caller may have left before it was sent; somebody else tries then."""
    tried.breaker.failed()
    tried.wait(PROBE_EVERY_US)
    assert tried.let_through() == 1
    tried.wait(PATIENCE_US - 1)
    assert tried.let_through() == 0
    tried.wait(1)
    assert tried.let_through() == 1


def test_success_closes_it(tried: Tried) -> None:
    """For everybody, at once."""
    tried.breaker.failed()
    tried.wait(PROBE_EVERY_US)
    assert tried.let_through() == 1
    tried.breaker.succeeded()
    assert not tried.breaker.is_open
    assert tried.let_through() == 10


STEPS = st.lists(st.sampled_from(["ask", "fail", "succeed"]) | st.integers(1, 400_000), max_size=60)


@given(STEPS)
def test_it_never_lets_two_try_at_once(steps: list[str | int]) -> None:
    """While it is open, a second one tries only after the first has failed, or has been given up."""
    tried, now, allowed_from = Tried(), 0, None
    for step in steps:
        if isinstance(step, int):
            now += step
            tried.wait(step)
        elif step == "fail":
            tried.breaker.failed()
            allowed_from = now + PROBE_EVERY_US
        elif step == "succeed":
            tried.breaker.succeeded()
            allowed_from = None
        else:
            assert tried.let_through() == (10 if allowed_from is None else int(now >= allowed_from))
            if allowed_from is not None and now >= allowed_from:
                allowed_from = now + PATIENCE_US
