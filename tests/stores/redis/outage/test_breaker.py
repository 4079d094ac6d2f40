"""The breaker: when it opens, who probes, and when it closes."""

from __future__ import annotations

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
