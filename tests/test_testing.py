"""The clock and the limiter for users' tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import MemoryStore, SyncLimiter
from asgi_ratelimit.testing import SteppedClock, SteppedLimiter


def test_it_stands_still() -> None:
    """Reading it does not move it."""
    clock = SteppedClock(5.0)
    assert [clock.now_us(), clock.now_us(), clock.now] == [5_000_000, 5_000_000, 5.0]


def test_it_starts_at_some_time_in_this_century() -> None:
    """The start is the same each time, and a time that real clocks show."""
    assert SteppedClock().now == SteppedClock().now == 1_800_000_000.0


@pytest.mark.parametrize(
    ("seconds", "now_us"),
    [
        (1, 1_000_000),
        (0.1, 100_000),
        (0, 0),
        (1e-6, 1),
        (1.5e-6, 2),
        (0.1 + 0.2, 300_000),
        (-0.25, -250_000),
        (86_400, 86_400_000_000),
    ],
)
def test_it_moves_by_whole_microseconds_rounded_up(seconds: float, now_us: int) -> None:
    """The noise of a float counts for nothing, a part of a microsecond for a whole one; below 0 it goes back."""
    clock = SteppedClock(0)
    clock.advance(seconds)
    assert clock.now_us() == now_us


@given(st.integers(0, 400 * 86_400 * 10**6))
def test_it_moves_by_exactly_what_a_decision_says(retry_us: int) -> None:
    """Whole microseconds that are given in seconds are what it moves by, up to the longest period."""
    clock = SteppedClock(0)
    clock.advance(retry_us / 1e6)
    assert clock.now_us() == retry_us


@given(st.lists(st.integers(-(10**9), 10**9)))
def test_its_steps_add_up(steps_us: list[int]) -> None:
    """However many there are, nothing gets lost in between."""
    clock = SteppedClock()
    start = clock.now_us()
    for step in steps_us:
        clock.advance(step / 1e6)
    assert clock.now_us() - start == sum(steps_us)


def test_it_moves_to_a_time() -> None:
    """Forward, and back."""
    clock = SteppedClock()
    for now in (2_000_000_000.5, 5.0):
        clock.move_to(now)
        assert clock.now == now


def test_it_drives_a_limiter() -> None:
    """What it is for: time passes in a test without a moment of waiting."""
    clock = SteppedClock()
    limiter = SyncLimiter("1/hour", store=MemoryStore(clock=clock))
    limiter.rate_limit("key")
    refused = limiter.rate_limit("key")
    clock.advance(refused.retry_after)
    assert (refused.allowed, limiter.rate_limit("key").allowed) == (False, True)


def test_it_shows_its_time() -> None:
    """For the messages of tests that fail."""
    assert repr(SteppedClock(5)) == "SteppedClock(5.0)"


@pytest.mark.anyio
async def test_a_limiter_goes_by_a_clock_of_its_own() -> None:
    """What was refused passes once its time has come, and nobody has waited for it."""
    limiter = SteppedLimiter("1/hour; 5/day fixed", name="mails")
    assert [(await limiter.rate_limit("key")).allowed for _ in range(2)] == [True, False]
    limiter.clock.advance(3600)
    assert (await limiter.rate_limit("key")).allowed
    assert limiter.name == "mails"


@pytest.mark.anyio
async def test_limiters_share_nothing() -> None:
    """Neither buckets nor time: one test does not meet what another one has used."""
    first, second = SteppedLimiter("1/hour"), SteppedLimiter("1/hour")
    assert [(await limiter.rate_limit("key")).allowed for limiter in (first, second)] == [True, True]
    first.clock.advance(3600)
    assert [(await limiter.rate_limit("key")).allowed for limiter in (first, second)] == [True, False]
