"""Exact timers of event loops: a timerfd where there is one, and the loop's own timers elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import selectors
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit import pace
from asgi_ratelimit.clock import elapsed_us
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.timers import FEW, LoopTimers, timers_of
from asgi_ratelimit.waiting.wakeups import LoopWakeUp

OF_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is of Linux")


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


class WithoutReaders(asyncio.SelectorEventLoop):
    """A loop that, like that of Windows, watches no files."""

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        raise NotImplementedError


class CountingSelector(selectors.DefaultSelector):
    """Counts the iterations of its loop."""

    count = 0

    def select(self, timeout: float | None = None) -> Any:
        self.count += 1
        return super().select(timeout)


async def sleep_until(at_us: float) -> float:
    """Sleep on a wake-up until a time; returns the time after that."""
    wake_up = LoopWakeUp(None)
    wake_up.set(at_us)
    await wake_up.sleep()
    return elapsed_us()


async def three_calls() -> list[float]:
    """When three calls at 500/s leave."""
    left: list[float] = []

    @pace("500/s")
    async def call() -> None:
        left.append(elapsed_us())

    await asyncio.gather(call(), call(), call())
    return left


@OF_LINUX
def test_files_are_closed_with_their_loops() -> None:
    """Each loop opens one file, however many wait on it, and closes it when it is closed."""
    asyncio.run(three_calls())
    before = open_files()
    gc.disable()  # a closed loop leaves nothing for the garbage collector
    try:
        for _ in range(50):
            asyncio.run(three_calls())
        assert open_files() == before
    finally:
        gc.enable()


@OF_LINUX
def test_a_loop_has_one_file() -> None:
    """It is opened by the first caller that waits, and used by all the others."""

    async def main() -> int:
        await sleep_until(elapsed_us() + 100)
        before = open_files()
        await asyncio.gather(*[sleep_until(elapsed_us() + 100 * number) for number in range(20)])
        return open_files() - before

    assert asyncio.run(main()) == 0


def test_a_loop_that_watches_no_files_uses_its_own_timers() -> None:
    """Then calls wait as well, and nothing stays open."""
    before = open_files() if Path("/proc/self/fd").exists() else 0
    with asyncio.Runner(loop_factory=WithoutReaders) as runner:
        started = elapsed_us()
        _, second, third = runner.run(three_calls())
        assert runner.run(timers_of_running_loop()) is None
    assert second - started > 1990
    assert third - started > 3990
    assert before in (0, open_files())


@OF_LINUX
def test_a_timer_may_be_set_to_any_time() -> None:
    """Also to one that is further away than the system counts; an earlier one rings at its time."""

    async def main() -> None:
        far = asyncio.create_task(sleep_until(1e19))
        await asyncio.sleep(0)
        await sleep_until(elapsed_us() + 100)
        assert not far.done()
        far.cancel()

    asyncio.run(main())


async def timers_of_running_loop() -> LoopTimers | None:
    return timers_of(asyncio.get_running_loop())()


@OF_LINUX
def test_a_stepped_clock_opens_no_file() -> None:
    """Its time is not that of the system."""
    clock = SteppedClock()

    async def main() -> int:
        before = open_files()
        wake_up = LoopWakeUp(clock)
        wake_up.set(clock.now_us() + 1e6)
        await wake_up.sleep()
        return open_files() - before

    assert clock.run(main()) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=200))
def test_every_task_wakes_at_its_time(sleeps: list[tuple[int, bool]]) -> None:
    """None before its time, and none is forgotten, while others are cancelled."""

    async def main() -> None:
        start = elapsed_us()
        tasks = [(asyncio.ensure_future(sleep_until(start + us)), us, stays) for us, stays in sleeps]
        await asyncio.sleep(0)
        for task, _, stays in tasks:
            if not stays:
                task.cancel()
        for task, us, stays in tasks:
            if stays:
                assert await asyncio.wait_for(task, 60) >= start + us

    asyncio.run(main())


@OF_LINUX
def test_cancelled_timers_do_not_pile_up() -> None:
    """However far away their times are, most of them are dropped."""

    async def main() -> int:
        timers = await timers_of_running_loop()
        assert timers is not None
        stays = asyncio.ensure_future(sleep_until(elapsed_us() + 1e12))
        for _ in range(10):
            gone = [asyncio.ensure_future(sleep_until(elapsed_us() + 1e12)) for _ in range(100)]
            await asyncio.sleep(0)
            for each in gone:
                each.cancel()
            await asyncio.wait(gone)
        waiting = len(timers)
        stays.cancel()
        return waiting

    assert asyncio.run(main()) <= FEW + 2


@OF_LINUX
def test_timers_of_two_loops_are_apart() -> None:
    """Also where the second loop takes the place of the first one in memory."""

    async def main() -> LoopTimers | None:
        await sleep_until(elapsed_us() + 100)
        return await timers_of_running_loop()

    timers = [asyncio.run(main()) for _ in range(20)]
    assert None not in timers
    assert len(set(map(id, timers))) == 20


def test_a_wake_up_that_is_set_again() -> None:
    """To a later time, then to an earlier one, while its task sleeps."""

    async def main() -> float:
        start = elapsed_us()
        wake_up = LoopWakeUp(None)
        wake_up.set(start + 1e9)
        task = asyncio.ensure_future(wake_up.sleep())
        await asyncio.sleep(0)
        wake_up.set(start + 2e9)
        wake_up.set(start + 2e3)
        await asyncio.wait_for(task, 60)
        return elapsed_us() - start

    assert asyncio.run(main()) >= 2e3


def test_a_task_wakes_in_its_own_context() -> None:
    """Although the timer of another task has woken it, and it goes on to set the timer of a third one."""
    number_of: ContextVar[int] = ContextVar("number_of")

    @pace("2000/s")
    async def call(number: int) -> int:
        return number_of.get()

    async def call_as(number: int) -> tuple[int, int]:
        number_of.set(number)
        return await call(number), number_of.get()

    async def main() -> list[tuple[int, int]]:
        return await asyncio.gather(*[call_as(number) for number in range(5)])

    assert asyncio.run(main()) == [(number, number) for number in range(5)]


def test_a_task_that_interrupts_its_loop_leaves_the_others_their_timers() -> None:
    """The loop can run again, and wakes those that were due at the same time, whatever others have set."""

    async def interrupt(at_us: float) -> None:
        await sleep_until(at_us)
        raise KeyboardInterrupt

    async def sleep_again(at_us: float) -> None:
        await sleep_until(at_us)
        await sleep_until(at_us + 1e9)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        at_us = elapsed_us() + 1000
        sleeping = loop.create_task(sleep_again(at_us))
        interrupting = loop.create_task(interrupt(at_us))
        others = [loop.create_task(sleep_until(at_us)) for _ in range(3)]
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(others))
        assert isinstance(interrupting.exception(), KeyboardInterrupt)
        for other in others:
            assert loop.run_until_complete(asyncio.wait_for(other, 5)) >= at_us
        sleeping.cancel()
        loop.run_until_complete(asyncio.wait([sleeping]))


def test_a_loop_sleeps_when_no_timer_is_left() -> None:
    """After the last one has rung, or was cancelled, the file wakes the loop no more."""
    selector = CountingSelector()

    async def main() -> int:
        start = elapsed_us()
        await sleep_until(start + 100)
        gone = asyncio.ensure_future(sleep_until(start + 2000))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        before = selector.count
        await asyncio.sleep(0.02)
        return selector.count - before

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(main()) <= 6


@OF_LINUX
@pytest.mark.long
@pytest.mark.parametrize("rate", [50, 70, 200, 300, 500, 1000, 2000])
def test_evenly_spaced_calls_reach_their_rate(rate: int) -> None:
    """At least 0.97 of it. On a machine that is busy with other work, some calls are later, and lose more."""
    left: list[float] = []

    @pace(f"{rate}/s")
    async def call() -> None:
        left.append(elapsed_us())

    async def main() -> None:
        await asyncio.gather(*[call() for _ in range(rate * 3)])

    asyncio.run(main())
    assert (len(left) - 1) / rate / (left[-1] - left[0]) * 1e6 >= 0.97
