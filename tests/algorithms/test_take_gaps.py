"""Takes of buckets with gaps: slots that suit several charges, and the most that one take can have."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import MAX_PIECES, State, decide
from asgi_ratelimit.algorithms.quota_kinds import ALGORITHMS
from asgi_ratelimit.algorithms.take import MAX_LOOKS
from asgi_ratelimit.decision import Charge, SettledCharge, Take
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to

NOW = 1_800_000_000_000_000.0
DAY = 86_400e6
UNIT = 1e6  # the level of one unit, for a period of a second


def even(number: int) -> TokenBucket:
    return TokenBucket(10, burst=1, name=f"even {number}")


def with_gaps(*starts: float, level: float = 1_000) -> State:
    """A state with gaps of one unit, each of which is a slot: that at n units is open after n / 10 s."""
    return (level * UNIT, NOW, 0, tuple((start * UNIT, UNIT) for start in starts), (), b"")


def wait_of(*states: State, max_wait: float = math.inf) -> tuple[float, list[State | None]]:
    """The delay of a take of one unit from buckets in these states, and their states afterwards."""
    take = Take(tuple(Charge(even(number), "key") for number in range(len(states))), max_wait)
    decision, written = decide(take, states, NOW)
    return decision.delay if decision.allowed else math.inf, written


def test_charges_agree_on_a_gap_that_they_share() -> None:
    """The first one that is open in all buckets, and it is used up in each."""
    delay, written = wait_of(with_gaps(10, 30, 50), with_gaps(20, 30, 60), with_gaps(5, 30))
    assert delay == 3.0
    assert written == [with_gaps(10, 50), with_gaps(20, 60), with_gaps(5)]


def test_a_refusal_tells_when_charges_agree() -> None:
    """Refused just before the first gap that all of them share, allowed at it."""
    states = [with_gaps(10, 30, 50), with_gaps(20, 30)]
    take = Take(tuple(Charge(even(number), "key") for number in range(2)))
    decision, _ = decide(take, states, NOW)
    assert (decision.allowed, decision.retry_after) == (False, 3.0)
    assert [decide(take, states, NOW + later)[0].allowed for later in (3e6 - 1, 3e6)] == [False, True]


def test_two_charges_with_all_gaps_find_the_one_that_they_share() -> None:
    """Behind hundreds of which only one of them has each."""
    first, second = ([start + 4 * number for number in range(MAX_PIECES - 1)] for start in (10, 12))
    delay, written = wait_of(with_gaps(*first, 1_900, level=2_000), with_gaps(*second, 1_900, level=2_000))
    assert delay == 190.0
    assert written == [with_gaps(*first, level=2_000), with_gaps(*second, level=2_000)]


@st.composite
def gapped(draw: st.DrawFn, name: str) -> tuple[Charge, State]:
    """A charge on a bucket that drains a few units in a microsecond, with gaps that it hardly fits into."""
    limit, burst = draw(st.sampled_from([1.0, 2.0, 3.0, 0.7])), draw(st.sampled_from([1.0, 2.0, 3.5]))
    quota = TokenBucket(limit, 1e-6, burst, draw(st.sampled_from([1.0, 0.5])), name)
    at, gaps = 0.0, []
    for distance, size in draw(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=8)):
        gaps.append((at + distance / 2, size / 2))
        at += (distance + size) / 2
    state: State = (at + draw(st.integers(1, 9)), NOW - draw(st.integers(0, 9)), 0, tuple(gaps), (), b"")
    return Charge(quota, "key", draw(st.sampled_from([1.0, 2.0, 3.0, 4.0]))), state


@given(st.tuples(gapped("a"), gapped("b")) | st.tuples(gapped("a"), gapped("b"), gapped("c")))
@up_to(300)
def test_charges_agree_on_the_first_slot_that_suits_all(crowd: tuple[tuple[Charge, State], ...]) -> None:
    """At no earlier microsecond does each of them conform."""

    def conform(wait_us: float) -> bool:
        return all(
            ALGORITHMS[TokenBucket].wait(charge.quota, state, NOW, charge.cost, wait_us) == wait_us
            for charge, state in crowd
        )

    decision, _ = decide(Take(tuple(charge for charge, _ in crowd), math.inf), [state for _, state in crowd], NOW)
    assert decision.delay * 1e6 == pytest.approx(next(filter(conform, map(float, range(1_000)))))


def test_charges_whose_gaps_disagree_go_to_the_ends_of_all_queues() -> None:
    """After a thousand looks; a gap that they share later is out of reach, and none is used up."""
    starts = [[10 + 30 * number + 2 * charge for number in range(MAX_PIECES - 1)] for charge in range(12)]
    assert len(starts) * MAX_PIECES > MAX_LOOKS
    states = [with_gaps(*gaps, 9_000, level=10_000) for gaps in starts]
    delay, written = wait_of(*states)
    assert delay == 1_000.0
    assert [state and state[3] for state in written] == [state[3] for state in states]


def test_a_shared_gap_beyond_the_longest_wait_is_refused() -> None:
    """The take writes nothing, though a gap of each charge is near enough."""
    states = [with_gaps(10, 30), with_gaps(20, 30)]
    assert wait_of(*states, max_wait=2.9) == (math.inf, [None, None])
    assert wait_of(*states, max_wait=3.0)[0] == 3.0


def test_a_gap_that_is_over_before_another_quota_has_units() -> None:
    """Where the end of the queue behind it is over a century away, the take is refused for good."""
    daily, window = TokenBucket(1, 86_400, name="daily"), FixedWindow(1, 10, name="window")
    take = Take((Charge(daily, "key"), Charge(window, "key")), 3600.0)
    with_gap: State = (2.0**53 * DAY, NOW, 0, ((0.0, DAY),), (), b"")
    used_up: State = ((0.0, ((NOW // 10e6, NOW // 10e6 + 1, 1.0),)), NOW, 0, (), (), b"")
    decision, written = decide(take, [with_gap, used_up], NOW)
    assert (decision.allowed, decision.retry_after, written) == (False, math.inf, [None, None])


QUOTAS: list[Quota] = [
    TokenBucket(10, burst=8, name="bucket"),
    TokenBucket(10, burst=5.5, burst_allowance_factor=0.5, name="slow"),
    FixedWindow(8, 1, name="fixed"),
    RollingWindow(8, 1, 10, name="rolling"),
]


@st.composite
def used_states(draw: st.DrawFn, quota: Quota) -> State:
    """The state of a bucket after takes of which some were given back, some time ago."""
    now, state = NOW - draw(st.integers(0, 2_000_000)), None
    algorithm = ALGORITHMS[type(quota)]
    state = algorithm.fresh(now)
    booked = []
    for _ in range(draw(st.integers(0, 8))):
        cost = draw(st.sampled_from([1.0, 2.0, 0.5]))
        after, wait_us, _ = algorithm.take(quota, state, now, cost, 2e6)
        if after is not None:
            place, slot = algorithm.place(quota, state, now, cost, wait_us)
            booked.append(SettledCharge(Charge(quota, "key", cost), now, state[2], place, slot, 0.0))
            state = after
    for number in draw(st.lists(st.integers(0, len(booked) - 1), unique=True)) if booked else []:
        state = algorithm.give_back(quota, state, now, booked[number])
    return state


@given(st.data(), st.lists(st.sampled_from(QUOTAS), min_size=1, max_size=2, unique=True), st.integers(1, 12))
@up_to(300)
def test_a_best_effort_is_the_most_that_fits(data: st.DataObject, quotas: list[Quota], cost: int) -> None:
    """It grants as many units as some plain take would get, and one unit more would be refused."""
    states = [data.draw(used_states(quota)) for quota in quotas]

    def is_allowed(units: float) -> bool:
        return decide(Take(tuple(Charge(quota, "key", units) for quota in quotas)), states, NOW)[0].allowed

    best, written = decide(Take(tuple(Charge(quota, "key", cost) for quota in quotas), best_effort=True), states, NOW)
    fitting = [units for units in range(1, cost + 1) if is_allowed(units)]
    if len(quotas) == 1:
        assert best.granted == max(fitting, default=0)
    else:  # gaps of several buckets need not be open together
        assert best.granted == 0 or is_allowed(best.granted)
        assert not is_allowed(best.granted + 1) or best.granted == cost
    assert best.allowed == all(state is not None for state in written)


MILLION = TokenBucket(1_000_000, burst=1_000_000, name="million")


def calls_of_best_effort(cost: float, state: State) -> tuple[float, int]:
    """What a best effort grants, and how many functions are called for it, those in C included."""
    take, calls = Take((Charge(MILLION, "key", cost),), best_effort=True), 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        decision, _ = decide(take, [state], NOW)
    finally:
        sys.setprofile(None)
    return decision.granted, calls


def test_a_best_effort_does_not_count_units() -> None:
    """From a million units with two gaps, it takes as many calls as from a hundred."""
    full = 1e6 * UNIT
    gaps = ((0.0, 1_000 * UNIT), (5_000 * UNIT, 900_000 * UNIT))
    granted, calls = calls_of_best_effort(1e6, (full, NOW, 0, gaps, (), b""))
    assert granted == 900_000
    small, few_calls = calls_of_best_effort(
        1e6, (full, NOW, 0, ((0.0, 100 * UNIT), (5_000 * UNIT, 10 * UNIT)), (), b"")
    )
    assert small == 100
    assert abs(calls - few_calls) <= 10
    assert calls <= 150


def test_a_best_effort_with_all_gaps_is_bounded() -> None:
    """The number of calls grows with the gaps alone."""
    gaps = tuple((950.0 * number * UNIT, 500.5 * UNIT) for number in range(MAX_PIECES))
    granted, calls = calls_of_best_effort(1e6, (1e6 * UNIT, NOW, 0, gaps, (), b""))
    assert granted == 500
    assert calls <= 40 * MAX_PIECES


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("quota", "cost", "booked", "cancelled", "before", "after"),
    [
        ("0.1/s", 0.25, 7, 5, 1.921079, 0.253889),
        ("3.3/s", 0.5, 11, 9, 0.083026, 0.178108),
        ("0.7/s burst 1", 1, 4, 2, 1.970489, 0.231739),
        (TokenBucket(1 / 3, burst=1), 0.7, 4, 2, 2.38002, 0.340003),
    ],
)
async def test_a_cancelled_slot_is_booked_once(
    store: Store, clock: SteppedClock, quota: Any, cost: float, booked: int, cancelled: int, before: float, after: float
) -> None:
    """Also where doubles put the start of the charge just outside of the gap that it fits into."""
    limiter = Limiter(quota, store=store)
    slots = [await limiter.pace("key", cost) for _ in range(booked)]
    clock.advance(before)
    await limiter.cancel(slots[cancelled])
    clock.advance(after)
    times = [(await limiter.pace("key", cost)).ready_at for _ in range(20)]
    assert len(set(times)) == len(times)
