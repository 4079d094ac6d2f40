"""Takes over all kinds of quotas: decisions, the states that are written, and what holds in every history."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State, decide, foresee
from asgi_ratelimit.algorithms.quota_kinds import States, current
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.examples import up_to
from tests.support.strategies import WAITS, costs, quotas, steps_us, token_buckets

NOW = 1_800_000_000_000_000.0
SECOND, DAY = 1e6, 86_400e6
UNIT = 1e6  # the level of one unit, for a period of a second

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
FULL = TokenBucket(10, burst=11, name="full")  # the same rate, and 11 at once
FIXED = FixedWindow(5, 1, name="fixed")
ROLLING = RollingWindow(5, 1, 10, name="rolling")


def state(level: float, last: float = NOW) -> State:
    return (level, last, 0, (), (), b"")


def take_of(quota: Quota, cost: float = 1, max_wait: float = 0.0) -> Take:
    return Take((Charge(quota, "key", cost),), max_wait)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (state(UNIT, NOW - DAY), (UNIT, NOW - DAY)),
        (state(UNIT, NOW + 1), (UNIT, NOW + 1)),
        (state(UNIT, NOW + SECOND), (UNIT, NOW + SECOND)),
        (state(UNIT, NOW + SECOND + 1), (UNIT, NOW)),
        (state(UNIT, NOW + 400 * DAY), (UNIT, NOW)),
        (None, (0.0, NOW)),
    ],
)
def test_the_current_state_after_a_clock_went_back(stored: State | None, expected: tuple[float, float]) -> None:
    """A step back by up to a period is waited out; by more, the bucket counts as changed just now."""
    assert current(EVEN, stored, NOW)[:2] == expected


@pytest.mark.parametrize("max_wait", [0.0, 0.099_999])
def test_a_refusal_writes_nothing(max_wait: float) -> None:
    """Rate limiting and pacing alike: a take that does not fit leaves no trace."""
    decision, written = decide(take_of(EVEN, max_wait=max_wait), [state(UNIT)], NOW)
    assert (decision.allowed, decision.granted, decision.delay, written) == (False, 0, 0.0, [None])
    assert decision.retry_after == pytest.approx(0.1 - max_wait, abs=1e-9)


def test_a_refusal_rebases_only_states_that_a_clock_left_in_the_future() -> None:
    """It does so once; the other states stay as they were, used or not, and the next refusal writes nothing."""
    take = Take((Charge(EVEN, "a"), Charge(FULL, "b"), Charge(FULL, "c")))
    decision, written = decide(take, [state(UNIT, NOW + DAY), None, state(UNIT, NOW - 5)], NOW)
    assert not decision.allowed
    assert [each and each[:2] for each in written] == [(UNIT, NOW), None, None]
    assert decide(take, written, NOW + 1)[1] == [None, None, None]


def test_all_charges_book_at_the_longest_wait() -> None:
    """One slot for the whole request: a quota with units to spare is charged at that moment, too."""
    take = Take((Charge(EVEN, "key", 1), Charge(FULL, "key", 2)), 1.0)
    decision, written = decide(take, [state(UNIT), state(0)], NOW)
    assert (decision.allowed, decision.delay, decision.ready_at) == (True, 0.1, (NOW + 100_000) / 1e6)
    assert [after and after[:2] for after in written] == [(2 * UNIT, NOW), (3 * UNIT, NOW)]


def test_one_refusal_refuses_all_charges() -> None:
    """The states say which charges would have passed alone; the one with the longest wait binds."""
    take = Take((Charge(FULL, "key"), Charge(EVEN, "key"), Charge(TokenBucket(1, name="slowest"), "key")))
    decision, written = decide(take, [None, state(UNIT), state(UNIT)], NOW)
    assert (decision.allowed, written) == (False, [None] * 3)
    assert [(each.allowed, each.retry_after) for each in decision.states] == [(True, 0.0), (False, 0.1), (False, 1.0)]
    assert (decision.quota.name, decision.retry_after, decision.remaining) == ("slowest", 1.0, 0)


def test_the_quota_with_the_least_left_binds_when_all_pass() -> None:
    """Its numbers are the decision's own."""
    decision, _ = decide(Take((Charge(FULL, "key"), Charge(EVEN, "key", 0.5))), [None, None], NOW)
    assert (decision.quota, decision.remaining, decision.reset_after) == (EVEN, 0, 0.05)


@pytest.mark.parametrize(
    ("quota", "cost", "max_wait", "stored"),
    [
        (EVEN, 1.001, 0.0, None),
        (FULL, 12, 0.0, None),
        (FULL, 2**53, 0.0, None),
        (FIXED, 6, 0.0, None),
        (FIXED, 6, math.inf, None),
        (ROLLING, 5.5, 0.0, None),
        (ROLLING, 5.5, math.inf, None),
        (TokenBucket(1, 86_400), 1, math.inf, state(2.0**53 * DAY)),
        (TokenBucket(1, 86_400), 1, 1.0, state(2.0**53 * DAY)),
    ],
)
def test_never(quota: Quota, cost: float, max_wait: float, stored: State | None) -> None:
    """A cost above what can ever pass, and a slot over a century away, are refused for good."""
    decision, written = decide(take_of(quota, cost, max_wait), [stored], NOW)
    assert (decision.allowed, decision.retry_after, decision.ready_at, written) == (False, math.inf, math.inf, [None])


def test_pacing_a_cost_above_the_burst() -> None:
    """It waits for an empty bucket, and holds it for cost x period / limit; the next cost waits until then."""
    states: States = [None]
    delays = []
    for cost in (5, 30, 11):
        decision, states = decide(take_of(FULL, cost, math.inf), states, NOW)
        delays.append(decision.delay)
    assert delays == [0.0, 0.5, 0.5 + 3.0]


@pytest.mark.parametrize("back", [1, SECOND, SECOND + 1, 3 * SECOND, DAY, 400 * DAY])
@pytest.mark.parametrize("quota", [FULL, FIXED, ROLLING], ids=lambda quota: quota.name)
def test_no_step_back_locks_out_for_long(quota: Quota, back: float) -> None:
    """However far the clock went ahead and came back, a full take passes within two periods or so."""
    _, used = decide(take_of(quota, quota.most), [None], NOW)
    refused, rebased = decide(take_of(quota, quota.most), used, NOW - back)
    assert not refused.allowed
    assert refused.retry_after <= 2.2
    at = NOW - back + round(refused.retry_after * 1e6)
    assert decide(take_of(quota, quota.most), rebased if rebased[0] else used, at)[0].allowed


# What must hold in every history.


@dataclass(frozen=True)
class Call:
    """A take, so many microseconds after the last one."""

    step_us: int
    costs: Sequence[float]
    max_wait: float


@dataclass
class Moment:
    """A take as it was decided: the time, the states before, and the states after."""

    now: float
    take: Take
    states: States
    decision: Decision
    after: States

    @property
    def slot(self) -> float:
        return self.now + round(self.decision.delay * 1e6)


History: TypeAlias = tuple[Sequence[Quota], Sequence[Call]]


@st.composite
def histories(draw: st.DrawFn, *, oversize: float = 1.0, back: bool = False) -> History:
    """One or two quotas, and calls that charge all of them, in both modes, with costs up to ``oversize`` bursts."""
    kinds = quotas if oversize == 1.0 else token_buckets
    chosen = [draw(kinds(name)) for name in ["first", "second"][: draw(st.integers(1, 2))]]
    step = steps_us(chosen[0])
    if back:
        step |= st.integers(-3 * round(chosen[0].period_us), -1)
    costs_of_call = st.tuples(*[costs(quota.most * oversize) for quota in chosen])
    return chosen, draw(st.lists(st.builds(Call, step, costs_of_call, WAITS), min_size=1, max_size=30))


def replay(history: History) -> Iterator[Moment]:
    """Each call as it was decided, from a bucket that was never used."""
    chosen, calls = history
    now, states = NOW, [None] * len(chosen)
    for call in calls:
        now += call.step_us
        take = Take(tuple(Charge(quota, "key", cost) for quota, cost in zip(chosen, call.costs)), call.max_wait)
        decision, written = decide(take, states, now)
        after = [stored if new is None else new for stored, new in zip(states, written)]
        yield Moment(now, take, states, decision, after)
        states = after


SLACK = 1 + Fraction(1, 10**9)  # for what doubles round


def require_ceiling(quota: Quota, slots: list[tuple[float, float]]) -> None:
    """The promise of a quota holds over the units that were admitted at their slots."""
    slots = sorted(slots, key=lambda slot: slot[0])
    if isinstance(quota, TokenBucket):
        require_meter(quota, slots)
    elif isinstance(quota, FixedWindow):
        require_windows(quota, slots)
    else:
        require_intervals(quota, slots)


def require_meter(quota: TokenBucket, slots: list[tuple[float, float]]) -> None:
    """At most ``burst + T * limit / period`` units in any interval of length T, by a meter in exact fractions.

    A cost above the burst, which waits for an empty bucket, stands alone at its slot.
    """
    rate = Fraction(quota.limit) / Fraction(quota.period_us)
    level, last = Fraction(0), Fraction(0)
    for at, cost in slots:
        level = max(level - rate * (Fraction(at) - last), Fraction(0)) + Fraction(cost)
        last = Fraction(at)
        assert level <= Fraction(max(quota.burst, cost)) * SLACK


def require_windows(quota: FixedWindow, slots: list[tuple[float, float]]) -> None:
    counts: dict[int, Fraction] = defaultdict(Fraction)
    for at, cost in slots:
        counts[int(at // quota.period_us)] += Fraction(cost)
    assert max(counts.values(), default=0) <= Fraction(quota.limit) * SLACK


def require_intervals(quota: RollingWindow, slots: list[tuple[float, float]]) -> None:
    for start, _ in slots:
        units = sum(Fraction(cost) for at, cost in slots if start <= at <= start + quota.period_us)
        assert units <= Fraction(quota.limit) * SLACK


def check_ceiling(history: History) -> None:
    admitted = [moment for moment in replay(history) if moment.decision.allowed]
    for number, quota in enumerate(history[0]):
        require_ceiling(quota, [(m.slot, m.take.charges[number].cost) for m in admitted])


@given(histories())
@up_to(200)
def test_no_interval_holds_more_than_the_quota_promises(history: History) -> None:
    """Whatever the arrival pattern, the costs and the mix of rate limiting and pacing, counted at the slots."""
    check_ceiling(history)


MINUTE = [TokenBucket(1), TokenBucket(1, 60.0, 2, name="second")]
UNEVEN = [Call(0, (1.0, 1.0), 0.0), Call(0, (1.0, 5.891569238496937), 100.0), Call(0, (1.0, 1.0), math.inf)]


@given(histories(oversize=3.0))
@example((MINUTE, UNEVEN))  # a third of a microsecond's drain is no noise of a float
@settings(max_examples=100)
def test_costs_above_the_burst_keep_the_promise(history: History) -> None:
    """Such a cost passes only when pacing, from an empty bucket, and everything after it waits until it has drained."""
    check_ceiling(history)


@pytest.mark.long
@given(histories() | histories(oversize=3.0))
@settings(max_examples=10_000)
def test_no_interval_in_ten_thousand_histories(history: History) -> None:
    """The same, for longer."""
    check_ceiling(history)


def check_exactness(history: History) -> None:
    refused = [m for m in replay(history) if not m.decision.allowed and m.decision.retry_after < math.inf]
    assume(refused)
    for moment in refused:
        retry_us = round(moment.decision.retry_after * 1e6)
        assert retry_us >= 1
        assert not decide(moment.take, moment.after, moment.now + retry_us - 1)[0].allowed
        assert decide(moment.take, moment.after, moment.now + retry_us)[0].allowed


THIRDS = TokenBucket(10, burst_allowance_factor=1 / 3)


@given(histories(oversize=1.5, back=True) | histories(back=True))
@example(([THIRDS], [Call(0, (1,), 0.0), Call(0, (10,), 0.0)]))  # a rate that no double holds
@up_to(200)
def test_a_refused_take_passes_at_its_retry_time_and_not_before(history: History) -> None:
    """The same take is refused a microsecond before ``retry_after`` and passes at it, wherever the clock went."""
    check_exactness(history)


@pytest.mark.long
@given(histories(oversize=1.5, back=True) | histories(back=True))
@settings(max_examples=10_000)
def test_retry_times_of_ten_thousand_histories(history: History) -> None:
    """The same, for longer."""
    check_exactness(history)


@given(histories(oversize=1.5, back=True) | histories(back=True))
@settings(max_examples=100)
def test_a_take_is_foreseen(history: History) -> None:
    """``foresee`` reports what ``decide`` then does, except that the remaining units are those before the take."""
    for moment in replay(history):
        foreseen, decision = foresee(moment.take, moment.states, moment.now), moment.decision
        if not decision.allowed:
            assert foreseen == decision
        answers = [(d.allowed, d.granted, d.delay, d.retry_after, d.ready_at) for d in (foreseen, decision)]
        assert answers[0] == answers[1]


@given(histories(oversize=1.5, back=True) | histories(back=True))
@settings(max_examples=100)
def test_a_decision_depends_on_its_arguments_only(history: History) -> None:
    """One take value, decided many times over different states, gives what a new one gives; nothing sticks to it."""
    takes: dict[object, Take] = {}
    for moment in replay(history):
        key = (moment.take.max_wait, *[charge.cost for charge in moment.take.charges])
        decision, written = decide(takes.setdefault(key, moment.take), moment.states, moment.now)
        assert decision == moment.decision
        assert [stored if new is None else new for stored, new in zip(moment.states, written)] == moment.after


@given(histories(back=True))
@up_to(200)
def test_what_remains_can_be_taken(history: History) -> None:
    """Each state's ``remaining`` passes at once, and one more at ``more_after`` and not before."""
    for moment in replay(history):
        for charge, each, after in zip(moment.take.charges, moment.decision.states, moment.after):
            require_outlook(charge.quota, after, moment.now, each.remaining, round(each.more_after * 1e6))


@pytest.mark.parametrize("quota", [FixedWindow(1.999999999999993, 0.007), RollingWindow(1.999999999999993, 60)])
def test_a_limit_just_below_a_whole_number_leaves_what_can_be_taken(quota: Quota) -> None:
    """One unit at once, not the two to which counts are rounded."""
    refused = decide(take_of(quota, 2), [None], 1e15)[0]
    assert (refused.allowed, refused.remaining) == (False, 1)
    assert decide(take_of(quota, 1), [None], 1e15)[0].allowed


def require_outlook(quota: Quota, after: State | None, now: float, remaining: int, more_us: float) -> None:
    if remaining:
        assert decide(take_of(quota, remaining), [after], now)[0].allowed
    if remaining + 1 <= quota.most:
        assert not decide(take_of(quota, remaining + 1), [after], now + more_us - 1)[0].allowed
        assert decide(take_of(quota, remaining + 1), [after], now + more_us)[0].allowed


@given(histories(oversize=1.5, back=True) | histories(back=True))
@settings(max_examples=100)
def test_a_bucket_is_as_good_as_new_at_its_reset_time(history: History) -> None:
    """At ``reset_after``, within a microsecond, the whole burst passes, and the answer is that of a new bucket."""
    for moment in replay(history):
        for charge, each, after in zip(moment.take.charges, moment.decision.states, moment.after):
            at = moment.now + round(each.reset_after * 1e6) + 1
            take = take_of(charge.quota, charge.quota.most)
            assert decide(take, [after], at)[0] == decide(take, [None], at)[0]


@given(st.integers(1, 500), st.sampled_from([1, 3, 7, 10, 1000]), st.sampled_from([1.0, 60.0, 3600.0]))
def test_a_flood_gets_the_burst_and_no_more(burst: int, limit: int, period: float) -> None:
    """From idle, whole units at once pass until the burst is used up."""
    for quota in (TokenBucket(limit, period, burst), FixedWindow(burst, period), RollingWindow(burst, period, 10)):
        moments = replay(([quota], [Call(0, (1,), 0.0)] * (burst + 5)))
        assert sum(moment.decision.allowed for moment in moments) == burst
