"""The breaker: when it opens, who probes, and when it closes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.stores.redis.outage import RETRY_EVERY_US, Breaker
from asgi_ratelimit.testing import SteppedClock

PROBE_TIMEOUT_US = 250_000.0


STEPS = st.lists(st.sampled_from(["call", "fail", "succeed"]) | st.integers(1, 400_000), max_size=60)


@given(STEPS)
def test_two_callers_never_probe_at_once(steps: list[str | int]) -> None:
    """While it is open, a second probe is allowed only after the first has failed or was abandoned."""
    clock, now, allowed_from = SteppedClock(), 0, None
    breaker = Breaker(clock.now_us, PROBE_TIMEOUT_US)
    for step in steps:
        if isinstance(step, int):
            now += step
            clock.advance(step / 1e6)
        elif step == "fail":
            breaker.record_failure()
            allowed_from = now + RETRY_EVERY_US
        elif step == "succeed":
            breaker.is_open = False
            allowed_from = None
        else:
            allowed = sum(breaker.begin_call() for _ in range(10))
            assert allowed == (10 if allowed_from is None else int(now >= allowed_from))
            if allowed_from is not None and now >= allowed_from:
                allowed_from = now + PROBE_TIMEOUT_US + RETRY_EVERY_US
