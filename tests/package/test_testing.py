"""The clock and the limiter for users' tests."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest
from hypothesis import example, given
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
@example(17_249_403_347_017)
@example(34_559_999_999_999)
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


def test_an_event_loop_takes_no_time() -> None:
    """Whatever tasks wait for, they wait on the clock, in their order, to the microsecond."""
    clock = SteppedClock(0)

    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return clock.now

    async def main() -> list[float]:
        return await asyncio.gather(*map(nap, [86_400 * 3, 0.3, 0.1 + 0.2, 0.300000009, 1e-6, 0]))

    assert clock.run(main()) == [259_200.0, 0.3, 0.3, 0.300001, 0.000001, 0.0]


def test_an_event_loop_sees_a_clock_that_is_stepped_by_hand() -> None:
    """All timers that lie behind it are due at once; a deadline is one of them."""
    clock = SteppedClock(0)

    async def main() -> None:
        async with asyncio.timeout(5):
            clock.advance(10)
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        clock.run(main())
    assert clock.now == 10.0


def test_an_event_loop_waits_for_threads_where_it_has_no_timers() -> None:
    """With no timer to go to, there is no time to move, and what is done elsewhere is waited for."""
    clock = SteppedClock(0)

    async def main() -> int:
        return await asyncio.to_thread(lambda: 5)

    assert (clock.run(main()), clock.now) == (5, 0.0)


def test_a_thread_waits_by_moving_the_clock() -> None:
    """Unless what it waits for is there already."""
    clock, event = SteppedClock(0), Event()
    clock.wait(event, 1.5)
    event.set()
    clock.wait(event, 1.5)
    assert clock.now == 1.5
