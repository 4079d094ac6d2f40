"""``@pace``: when calls go, and which buckets they are charged to, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, Limiter, PaceTimeout, QuotaError, SyncLimiter, pace
from asgi_ratelimit.quota_text import QuotaLike
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore

CASES: list[tuple[QuotaLike, list[float]]] = [
    ("10/s", [0.0, 0.1, 0.2, 0.3, 0.4]),
    ("10/s burst 3", [0.0, 0.0, 0.0, 0.1, 0.2]),
    (TokenBucket(10, burst=2), [0.0, 0.0, 0.1, 0.2, 0.3]),
    (FixedWindow(2, 1), [0.0, 0.0, 1.0, 1.0, 2.0]),
    (["10/s", TokenBucket(2, 1, name="pairs")], [0.0, 0.1, 0.5, 1.0, 1.5]),
]


@pytest.mark.parametrize("with_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(("quota", "starts"), CASES)
def test_calls_go_as_soon_as_they_may(
    store: CountingStore, clock: SteppedClock, quota: QuotaLike, starts: list[float], with_async: bool
) -> None:
    """Five calls, at once or one after the other in one thread, each at its slot and in their order, with one take."""

    @pace(quota, store=store)
    async def call(number: int) -> tuple[int, float]:
        return number, clock.now

    async def main() -> list[tuple[int, float]]:
        return await asyncio.gather(*map(call, range(5)))

    blocking = pace(quota, store=store)(lambda number: (number, clock.now))
    assert (clock.run(main()) if with_async else [*map(blocking, range(5))]) == list(enumerate(starts))
    assert store.takes == 5


# Slots


def test_a_slot_too_far_away_is_not_booked(store: CountingStore, clock: SteppedClock) -> None:
    """It raises at once, with the decision, and the next call gets that slot. Hooks see each leave, or be refused."""
    events: list[tuple[str, bool, float]] = []
    seen = [lambda event: events.append((event.name, event.decision.allowed, clock.now))]

    @pace("10/s", store=store, max_delay=0.15, name="api", hooks=seen)
    async def call() -> float:
        return clock.now

    async def main() -> None:
        first, second, third = await asyncio.gather(call(), call(), call(), return_exceptions=True)
        assert (first, second) == (0.0, 0.1)
        assert isinstance(third, PaceTimeout)
        assert isinstance(third, TimeoutError)
        assert (third.decision.allowed, third.decision.retry_after) == (False, 0.05)
        assert "is 0.2 s away, max_delay is 0.15 s" in str(third)
        assert events == [("api", True, 0.0), ("api", False, 0.0), ("api", True, 0.1)]
        assert await call() == 0.2

    clock.run(main())


# Names, keys and costs


def test_buckets_are_shared_by_name(store: CountingStore, clock: SteppedClock) -> None:
    """With a limiter and with other functions of that name; without a name, each function has its own."""
    limiter = SyncLimiter(TokenBucket(10, burst=1), store=store, name="api")

    @pace("10/s", store=store, name="api")
    def named() -> float:
        return clock.now

    @pace("10/s", store=store)
    def unnamed() -> float:
        return clock.now

    assert limiter.rate_limit("").allowed
    assert named() == 0.1
    assert limiter.peek("").retry_after == 0.1
    assert pace("10/s", store=store, name="api")(lambda: clock.now)() == 0.2
    assert [unnamed(), unnamed()] == [0.2, 0.3]
    own = SyncLimiter("10/s burst 1", store=store, name=f"{__name__}.{unnamed.__qualname__}")
    assert own.peek("").retry_after == 0.1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"quota": "10/fortnight"}, QuotaError),
        ({"quota": "10/s", "max_delay": -1}, ConfigurationError),
        ({"quota": "10/s", "store": "nowhere://"}, ConfigurationError),
        ({"quota": "10/s", "cost": 0}, ValueError),
        ({"quota": "10/s", "key": 5}, TypeError),
    ],
    ids=repr,
)
def test_arguments_are_checked_when_a_function_is_decorated(wrong: dict[str, Any], error: type[Exception]) -> None:
    """Not at its first call."""
    with pytest.raises(error):
        pace(**wrong)(print)


def test_pace_without_its_quota_is_refused() -> None:
    """The error shows one."""
    with pytest.raises(QuotaError, match=r'@pace lacks its quota: @pace\("5/s"\)'):

        @pace  # type: ignore[arg-type]
        def call() -> None: ...


def test_a_call_that_blocks_an_event_loop_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A function without ``async`` that waits on the thread of a loop, but not in a thread of its own."""
    call = pace("1000/s")(lambda: None)

    async def main() -> None:
        for _ in range(5):
            await asyncio.to_thread(call)
        assert not caplog.messages
        for _ in range(5):
            call()

    asyncio.run(main())
    (message,) = caplog.messages
    assert "a call waits for its slot without async" in message
    assert "blocks the event loop" in message


# Margin, hooks and estimates


def test_a_margin_leaves_a_part_of_the_limit_unused(store: CountingStore, clock: SteppedClock) -> None:
    """A fifth of 10/s is 8/s; of a window of ten, eight go."""
    call = pace("10/s", store=store, margin=0.2)(lambda: clock.now)
    assert [call() for _ in range(3)] == pytest.approx([0.0, 0.125, 0.25])
    clock.move_to(10)
    windowed = pace("10 per 10 seconds fixed", store=store, margin=0.2)(lambda: clock.now)
    assert [windowed() for _ in range(9)] == [10.0] * 8 + [20.0]


def test_a_margin_makes_a_rolling_window_longer(store: CountingStore, clock: SteppedClock) -> None:
    """All of its units stay, however few they are, and each call may be late by the rest of the time."""
    call = pace(RollingWindow(3, 8, buckets=8), store=store, margin=0.2)(lambda: clock.now)
    assert [call() for _ in range(7)] == [0.0] * 3 + [11.25] * 3 + [22.5]  # parts of 1.25 s: the window, and one more


def test_eta_says_how_long_a_caller_would_wait(store: CountingStore, clock: SteppedClock) -> None:
    """By the callers that wait, and by the cost; nothing is booked."""
    limiter = Limiter("10/s burst 1", store=store, name="api")
    call = pace("10/s", store=store, name="api")(asyncio.sleep)

    async def main() -> None:
        assert await limiter.eta("") == 0.0
        calls = [asyncio.ensure_future(call(0)) for _ in range(5)]
        await asyncio.sleep(0)
        assert [await limiter.eta("") for _ in range(2)] == [0.5, 0.5]
        assert await limiter.waiting("") == 4
        assert await limiter.eta("other") == 0.0
        await asyncio.gather(*calls)

    clock.run(main())
    assert SyncLimiter("10/s burst 1", store=store, name="api").eta("") == pytest.approx(0.1)
    assert SyncLimiter("5 per 10 seconds fixed", store=store).eta("", cost=6) == float("inf")
