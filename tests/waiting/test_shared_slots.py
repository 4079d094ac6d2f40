"""Slots of a store that several processes book: calls of one keep their distance to those of the others."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import unused
from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.outbound.sending.pauses import PAUSE
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import SlotWaiter, run_async
from asgi_ratelimit.waiting.slots.call_spacing import ON_THE_WAY_US, CallSpacing
from asgi_ratelimit.waiting.slots.caller_queue import TaskWaiter, Waiting
from asgi_ratelimit.waiting.slots.slot import LONGEST_LEAD_US, VALID_US, Slot, StoreTime, lead_us
from asgi_ratelimit.waiting.slots.slot_queues import SlotQueues
from tests.support.late_stores import LateAnswers, StoreOfProcess

TAKE = Take((Charge(TokenBucket(10, burst=1), "key"),), float("inf"))
UNLESS_PAUSED = Take((*TAKE.charges, Condition(PAUSE, "key")), float("inf"))
"""The take of a request."""


class Process:
    """The callers of one process, and when their calls leave."""

    def __init__(self, store: Store, margin: float = 0.0) -> None:
        self.waiter = SlotWaiter(store, margin=margin)
        self.left: list[float] = []
        self.late: list[float] = []

    async def call(self, after: float = 0.0, take: Take = TAKE) -> None:
        """Come after some seconds, and leave at a slot."""
        await asyncio.sleep(after)
        decision = await run_async(self.waiter.wait(take))
        self.left.append(self.waiter.now_us() / 1e6)
        self.late.append(self.left[-1] - decision.ready_at)


@pytest.mark.parametrize("take", [TAKE, UNLESS_PAUSED], ids=["plain", "with a condition"])
def test_an_answer_that_comes_late_makes_no_slot_late(take: Take) -> None:
    """A later answer tells the time of the store better, for the slots that were booked before as well."""
    clock = SteppedClock(0)
    shared = MemoryStore(clock=clock)
    process = Process(LateAnswers(shared, lambda now: 0.08 if now < 0.05 else 0.001))

    async def main() -> None:
        await shared.take([TAKE])  # another process has the first slot
        await asyncio.gather(*[process.call(take=take) for _ in range(3)], process.call(0.085, take))

    clock.run(main())
    assert process.left == pytest.approx([0.101, 0.201, 0.301, 0.401])


MOMENTS = st.integers(0, 1_000_000)


@given(st.lists(st.tuples(st.integers(0, round(VALID_US / 4)), MOMENTS, MOMENTS), min_size=1))
def test_the_time_of_a_store_is_never_ahead_of_what_it_is(answers: list[tuple[int, int, int]]) -> None:
    """However late each request and each answer is; of the last ones, the quickest answer counts."""
    store_time, ahead_us, now_us, latest = StoreTime(), 5e8, 1e9, list[tuple[float, float]]()
    for gap_us, there_us, back_us in answers:
        asked_us = now_us + gap_us
        now_us = asked_us + there_us + back_us
        known_us = store_time.ahead_us(asked_us + there_us + ahead_us, asked_us, now_us)
        latest = [each for each in [*latest, (now_us, back_us)] if each[0] >= now_us - VALID_US]
        assert ahead_us - min(back for _, back in latest) <= known_us <= ahead_us


def test_a_store_whose_clock_was_set_back_is_believed() -> None:
    """Slots would begin too early otherwise."""
    store_time = StoreTime()
    assert store_time.ahead_us(5000.0, 1000.0, 1200.0) == 3800.0
    assert store_time.ahead_us(4000.0, 2000.0, 2200.0) == 1800.0


def test_the_margin_serves_to_catch_up() -> None:
    """A call that is 8 ms late delays those behind it, each by 2 ms less: slots are 20 ms apart, calls at least 18."""
    clock = SteppedClock(0)
    process = Process(MemoryStore(clock=clock), margin=0.1)
    take = Take((Charge(TokenBucket(50, burst=1), "key"),), float("inf"))

    async def main() -> None:
        calls = [asyncio.ensure_future(process.call(take=take)) for _ in range(8)]
        await asyncio.sleep(0.019)
        clock.advance(0.009)
        await asyncio.gather(*calls)

    clock.run(main())
    assert process.left == pytest.approx([0.0, 0.028, 0.046, 0.064, 0.082, 0.1, 0.12, 0.14])


def test_no_more_leaves_than_the_limit_without_its_margin_admits() -> None:
    """Of bursts, too."""
    departures, charges = CallSpacing(), (Charge(TokenBucket(9, burst=2), "key"),)
    waits = [departures.depart(charges, at_us, 0.0, 0.1) for at_us in (0.0, 0.0, 0.0, 1e5 - 1, 1e5, 2e5)]
    assert waits == pytest.approx([0.0, 0.0, 1e5, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("burst", "is_shared", "margin", "delay_us", "begins_us"),
    [
        (50, True, 0.02, 20_000.0, 45_000.0),
        (6, True, 0.02, 20_000.0, 25_000.0),
        (50, True, 0.02, 0.0, 0.0),
        (1, True, 0.02, 20_000.0, 20_000.0),
        (50, False, 0.02, 20_000.0, 20_000.0),
        (50, True, 0.0, 20_000.0, 20_000.0),
    ],
    ids=["burst", "small burst", "in the burst", "even", "one process", "no margin"],
)
@pytest.mark.anyio
async def test_a_slot_behind_a_shared_burst_gives_its_first_call_time_to_arrive(
    burst: float, is_shared: bool, margin: float, delay_us: float, begins_us: float
) -> None:
    """With a margin: another process may have made that call, a fortieth of the burst's time ago, or 5 ms at least."""
    queues = SlotQueues(ON_THE_WAY_US, is_shared)
    take = Take((Charge(TokenBucket(49, burst=burst), "key"),), float("inf"))
    waiter = TaskWaiter(Waiting(None, lambda slot: None, margin), take)
    queues.join(waiter, 0.0)
    decision = Decision(take, True, delay_us, [unused(take.charges[0].quota, 0.0)], 0.0)
    queues.answered(waiter, Slot(0.0, delay_us, delay_us + 1e5, decision, 0.0), 0.0)
    assert queues.wait_us(waiter, 0.0) == begins_us


@pytest.mark.parametrize("late", [0.013, 0.05, 0.09])
def test_a_late_call_does_not_leave_close_to_a_slot_of_another_process(late: float) -> None:
    """It gives its slot back, and books another one; calls before it, whose next slot is their own, go on late."""
    clock = SteppedClock(0)
    shared = MemoryStore(clock=clock)
    one, other = Process(StoreOfProcess(shared), 0.001), Process(StoreOfProcess(shared), 0.001)

    async def main() -> None:
        calls = [one.call(), one.call(), one.call(), other.call(0.05), other.call(0.05)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0.1)
        clock.advance(late)
        await asyncio.gather(*tasks)

    clock.run(main())
    assert one.left == pytest.approx([0.001, 0.1 + late, 0.501], abs=0.002)
    assert other.left == pytest.approx([0.301, 0.401], abs=0.002)
    left = sorted(one.left + other.left)
    assert min(later - earlier for earlier, later in pairwise(left)) >= 0.09


def test_a_slot_is_skipped_when_the_next_one_has_come() -> None:
    """The calls behind a late one are late by less than the distance of slots, and leave as early as without it."""
    clock = SteppedClock(0)
    shared = MemoryStore(clock=clock)
    process = Process(StoreOfProcess(shared), 0.001)
    take = Take((Charge(TokenBucket(20, burst=1), "key"),), float("inf"))

    async def main() -> None:
        calls = [asyncio.ensure_future(process.call(take=take)) for _ in range(6)]
        await asyncio.sleep(0.05)
        clock.advance(0.06)
        await asyncio.gather(*calls)

    clock.run(main())
    assert process.left == pytest.approx([0.001, 0.11, 0.16, 0.21, 0.26, 0.31], abs=0.002)
    assert max(process.late) < 0.05


def test_without_a_margin_a_late_call_uses_its_slot() -> None:
    """As a request that waits does, or a call to a service that does not count strictly."""
    clock = SteppedClock(0)
    process = Process(StoreOfProcess(MemoryStore(clock=clock)))

    async def main() -> None:
        calls = [asyncio.ensure_future(process.call()) for _ in range(2)]
        await asyncio.sleep(0.1)
        clock.advance(0.08)
        await asyncio.gather(*calls)

    clock.run(main())
    assert process.left == pytest.approx([0.001, 0.18], abs=0.002)


def test_the_lead_follows_long_answers_at_once_and_short_ones_slowly() -> None:
    """It has a bound: a store that stalls makes no check much too early."""
    leads = [0.0]
    for answer_us in (100.0, 180.0, 100.0, 100.0, 90e6):
        leads.append(lead_us(leads[-1], answer_us))
    assert leads == [0.0, 100.0, 180.0, 177.0, 174.0, LONGEST_LEAD_US]
