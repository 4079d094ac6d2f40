"""The breaker: when it opens, who probes, and when it closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.stores.redis.outage import RETRY_EVERY_US, Breaker
from asgi_ratelimit.testing import SteppedClock

PROBE_TIMEOUT_US = 250_000.0


class Trial:
    """A breaker on a clock that is stepped by hand."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.breaker = Breaker(self.clock.now_us, PROBE_TIMEOUT_US)

    def allowed(self, callers: int = 10) -> int:
        """How many of some callers at one moment may call the store."""
        return sum(self.breaker.begin_call() for _ in range(callers))

    def wait(self, us: float) -> None:
        self.clock.advance(us / 1e6)


@pytest.fixture
def trial() -> Trial:
    return Trial()


def test_a_closed_breaker_allows_all_calls(trial: Trial) -> None:
    """Until a call fails."""
    assert not trial.breaker.is_open
    assert trial.allowed() == 10


def test_the_first_failure_opens_it(trial: Trial) -> None:
    """No call is allowed before the next probe."""
    trial.breaker.record_failure()
    assert trial.breaker.is_open
    assert trial.allowed() == 0
    trial.wait(RETRY_EVERY_US - 1)
    assert trial.allowed() == 0


def test_one_caller_at_a_time_probes(trial: Trial) -> None:
    """The others do not wait for the outcome; a failed probe is followed by another one after the interval."""
    trial.breaker.record_failure()
    for _ in range(3):
        trial.wait(RETRY_EVERY_US)
        assert trial.allowed() == 1
        trial.wait(RETRY_EVERY_US)
        assert trial.allowed() == 0
        trial.breaker.record_failure()
        assert trial.allowed() == 0


def test_a_probe_without_an_outcome_is_abandoned(trial: Trial) -> None:
    """Its caller may have been cancelled before it was sent; then another caller probes."""
    trial.breaker.record_failure()
    trial.wait(RETRY_EVERY_US)
    assert trial.allowed() == 1
    trial.wait(PROBE_TIMEOUT_US + RETRY_EVERY_US - 1)
    assert trial.allowed() == 0
    trial.wait(1)
    assert trial.allowed() == 1


def test_success_closes_it(trial: Trial) -> None:
    """For all callers, at once."""
    trial.breaker.record_failure()
    trial.wait(RETRY_EVERY_US)
    assert trial.allowed() == 1
    trial.breaker.is_open = False
    assert not trial.breaker.is_open
    assert trial.allowed() == 10


STEPS = st.lists(st.sampled_from(["call", "fail", "succeed"]) | st.integers(1, 400_000), max_size=60)


@given(STEPS)
def test_two_callers_never_probe_at_once(steps: list[str | int]) -> None:
    """While it is open, a second probe is allowed only after the first has failed or was abandoned."""
    trial, now, allowed_from = Trial(), 0, None
    for step in steps:
        if isinstance(step, int):
            now += step
            trial.wait(step)
        elif step == "fail":
            trial.breaker.record_failure()
            allowed_from = now + RETRY_EVERY_US
        elif step == "succeed":
            trial.breaker.is_open = False
            allowed_from = None
        else:
            assert trial.allowed() == (10 if allowed_from is None else int(now >= allowed_from))
            if allowed_from is not None and now >= allowed_from:
                allowed_from = now + PROBE_TIMEOUT_US + RETRY_EVERY_US
