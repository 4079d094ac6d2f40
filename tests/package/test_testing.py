"""The clock and the limiter for the tests of users."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from threading import Event, Timer
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.testing import SteppedClock, SteppedLimiter


@pytest.mark.parametrize(
    ("seconds", "now_us"),
    [(0.1, 100_000), (1e-6, 1), (1.5e-6, 2), (0.1 + 0.2, 300_000), (-0.25, -250_000), (86_400, 86_400_000_000)],
)
def test_it_moves_by_whole_microseconds_rounded_up(seconds: float, now_us: int) -> None:
    """Float noise is ignored, a part of a microsecond counts as one, and a negative number moves the clock back."""
    clock = SteppedClock(0)
    clock.advance(seconds)
    assert clock.now_us() == now_us


@pytest.mark.parametrize("seconds", ["1", None, True, timedelta(seconds=1), math.nan, math.inf], ids=repr)
def test_it_moves_by_seconds_only(seconds: Any) -> None:
    """The error quotes the value, shows a right call, and the clock stands where it was."""
    clock = SteppedClock(5)
    for move, right in ((clock.advance, "clock.advance(1.5)"), (clock.move_to, "clock.move_to(1_800_000_000.0)")):
        with pytest.raises(ConfigurationError) as caught:
            move(seconds)
        assert repr(seconds) in str(caught.value)
        assert str(caught.value).endswith(right)
    with pytest.raises(ConfigurationError, match=r"SteppedClock\(1_800_000_000\.0\)"):
        SteppedClock(seconds)
    assert clock.now == 5.0


@given(st.integers(0, 400 * 86_400 * 10**6))
@example(17_249_403_347_017)
@example(34_559_999_999_999)
def test_it_moves_by_exactly_the_time_of_a_decision(retry_us: int) -> None:
    """Whole microseconds, given in seconds, are exact up to the longest period."""
    clock = SteppedClock(0)
    clock.advance(retry_us / 1e6)
    assert clock.now_us() == retry_us


@pytest.mark.anyio
async def test_a_limiter_has_its_own_clock() -> None:
    """A refused call passes after its retry time, without waiting; another limiter shares neither time nor buckets."""
    limiter = SteppedLimiter("1/hour; 5/day fixed", name="mails")
    assert [(await limiter.rate_limit("key")).allowed for _ in range(2)] == [True, False]
    limiter.clock.advance(3600)
    assert (await limiter.rate_limit("key")).allowed
    assert limiter.name == "mails"
    other = SteppedLimiter("1/hour; 5/day fixed", name="mails")
    assert [(await other.rate_limit("key")).allowed for _ in range(2)] == [True, False]


def test_an_event_loop_takes_no_real_time() -> None:
    """Tasks sleep on the clock, in order, to the microsecond."""
    clock = SteppedClock(0)

    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return clock.now

    async def main() -> list[float]:
        return await asyncio.gather(*map(nap, [86_400 * 3, 0.3, 0.1 + 0.2, 0.300000009, 1e-6, 0]))

    assert clock.run(main()) == [259_200.0, 0.3, 0.3, 0.300001, 0.000001, 0.0]


@pytest.mark.parametrize("moved", [200 * 86_400, 10**9, 4 * 10**9 + 0.000001, -(10**9)])
def test_an_event_loop_goes_on_whose_clock_was_moved_far(moved: float) -> None:
    """Where its time is no longer exact to a nanosecond, timers still ring, and callers still get their slots."""
    limiter = SteppedLimiter("3/s burst 1")

    async def main() -> float:
        await limiter.acquire("key")
        limiter.clock.advance(moved)
        await limiter.acquire("key")
        start = limiter.clock.now
        await asyncio.gather(*[limiter.acquire("key") for _ in range(6)])
        await asyncio.sleep(1)
        return limiter.clock.now - start

    assert limiter.clock.run(main()) == pytest.approx(3, abs=1e-5)


def test_an_event_loop_notices_that_its_clock_is_moved() -> None:
    """All timers before the new time fire at once; a deadline is one of them."""
    clock = SteppedClock(0)

    async def main() -> None:
        async with asyncio.timeout(5):
            clock.advance(10)
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        clock.run(main())
    assert clock.now == 10.0


def test_an_event_loop_without_timers_waits_for_threads() -> None:
    """Without a timer, the clock does not move, and the loop waits for work in other threads."""
    clock = SteppedClock(0)

    async def main() -> int:
        return await asyncio.to_thread(lambda: 5)

    assert (clock.run(main()), clock.now) == (5, 0.0)


def test_the_end_of_an_event_loop_waits_for_its_threads() -> None:
    """However long they take: the clock does not move, and nothing runs out of time."""
    clock, is_over, ended = SteppedClock(0), Event(), list[bool]()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, lambda: ended.append(is_over.wait(60)))
        Timer(0.2, is_over.set).start()

    clock.run(main())
    assert (ended, clock.now) == ([True], 0.0)


def test_a_thread_waits_by_moving_the_clock() -> None:
    """Unless its event is set already; another one may move it meanwhile."""
    clock, event = SteppedClock(0), Event()

    class Interrupted(float):
        def __float__(self) -> float:
            return clock.wait(event, 1.0) or 0.5

    clock.wait(event, Interrupted())
    event.set()
    clock.wait(event, 1.5)
    assert clock.now == 1.5


@pytest.mark.anyio
async def test_it_says_that_another_loop_is_running() -> None:
    """A coroutine of a test has one already; nothing is left unawaited."""
    main = asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match=r"another is running: .* def test_it\(\): clock.run\(main\(\)\)"):
        SteppedClock().run(main)
    assert main.cr_frame is None
