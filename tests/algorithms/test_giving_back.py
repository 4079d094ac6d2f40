"""What is given back: the promise holds for actual costs, and what is left is what they would have left."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import MAX_LOWS, State, current, decide, foresee, reset_us, settle, settlement_of, used
from asgi_ratelimit.algorithms.draining import drained
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import TokenBucket
from tests.support.examples import up_to

NOW = 1_800_000_000_000_000.0


@dataclass
class Booked:
    """One admitted take, and what it really came to, of each quota."""

    decision: Decision
    actual: float
    is_settled: bool = False


@dataclass
class Buckets:
    """The buckets of one key under some quotas, and everything that was admitted."""

    quotas: list[TokenBucket]
    now: float = NOW
    states: list[State | None] = field(default_factory=list)
    booked: list[Booked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [None] * len(self.quotas)

    def take(self, cost: float, max_wait: float = 0.0, *, only: int | None = None, may_settle: bool = True) -> Decision:
        """A take of all quotas, or of one of them only."""
        numbers = range(len(self.quotas)) if only is None else [only % len(self.quotas)]
        charges = tuple(Charge(self.quotas[number], "key", cost) for number in numbers)
        take = Take(charges, max_wait, may_settle=may_settle)
        decision, written = decide(take, [self.states[number] for number in numbers], self.now, len(self.booked) * 9)
        for number, state in zip(numbers, written):
            self.states[number] = state or self.states[number]
        if decision.allowed:
            self.booked.append(Booked(decision, cost))
        return decision

    def settle(self, booked: Booked, actual: float) -> None:
        """Settle an admitted take at ``actual`` units, once."""
        assert not booked.is_settled
        booked.is_settled, booked.actual = True, actual
        take = booked.decision.take
        assert take
        settlement = settlement_of(booked.decision, [actual] * len(take.charges))
        assert settlement
        numbers = [self.quotas.index(charge.quota) for charge in take.charges]
        written = settle(settlement, [self.states[number] for number in numbers], self.now)
        for number, state in zip(numbers, written):
            self.states[number] = state or self.states[number]

    def open(self) -> list[Booked]:
        """The takes that are not settled."""
        return [booked for booked in self.booked if not booked.is_settled]

    def used(self, number: int = 0) -> float:
        """The units in use now."""
        state = self.states[number]
        return 0.0 if state is None else used(self.quotas[number], state, self.now)

    def entries(self, number: int) -> list[tuple[float, Fraction]]:
        """The slots and the actual units of one quota, without what was debited on top."""
        found = []
        for booked in self.booked:
            take = booked.decision.take
            assert take
            if self.quotas[number] in [charge.quota for charge in take.charges]:
                slot = booked.decision.now_us + round(booked.decision.delay * 1e6)
                found.append((slot, Fraction(min(booked.actual, booked.decision.granted))))
        return sorted(found)

    def require_promise(self) -> None:
        """In no interval more actual units than ``burst + T * limit / period``."""
        for number, quota in enumerate(self.quotas):
            entries = self.entries(number)
            for at, (first, _) in enumerate(entries):
                total = Fraction(0)
                for last, units in entries[at:]:
                    total += units
                    span = round(last - first)
                    most = Fraction(quota.burst) + span * Fraction(quota.limit) / round(quota.period_us)
                    assert total <= most + Fraction(1, 10**6), (
                        quota,
                        first - NOW,
                        last - NOW,
                        float(total),
                        float(most),
                    )


@dataclass(frozen=True)
class Step:
    """Something that happens: a take of one quota or all, a settlement of a take, or time goes by."""

    kind: str
    us: int = 0
    cost: float = 1.0
    max_wait: float = 0.0
    only: int | None = None
    may_settle: bool = True
    which: int = 0
    share: float = 0.0


BUCKETS = st.builds(
    TokenBucket,
    st.sampled_from([1, 2, 3, 5, 10, 0.5, 2.5]),
    st.sampled_from([1.0, 3.0, 10.0]),
    st.sampled_from([1, None, 2, 3, 5.5, 10]),
    st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.3]),
)


@st.composite
def histories(draw: st.DrawFn, *, recorded: bool = False, up: bool = True) -> tuple[list[TokenBucket], list[Step]]:
    """One or two quotas, and what happens to their buckets."""
    quotas = draw(st.lists(BUCKETS, min_size=1, max_size=2, unique_by=lambda quota: quota.name))
    unit = round(min(quota.period_us / quota.limit for quota in quotas))
    costs = st.sampled_from([1.0, 1.0, 0.5, 0.25, 2.0, 3.0, 0.1])
    costs = costs.filter(lambda cost: all(cost <= quota.burst for quota in quotas))
    waits = st.sampled_from([0.0, 0.0, math.inf, 2 * unit / 1e6])
    onlies = st.sampled_from([None, None, 0, 1])
    may_settle = st.just(True) if recorded else st.sampled_from([True, True, False])
    takes = st.builds(Step, st.just("take"), st.just(0), costs, waits, onlies, may_settle)
    moves = st.builds(Step, st.just("move"), st.sampled_from([1, 7, unit // 5, unit // 2, unit, 3 * unit, 20 * unit]))
    shares = st.sampled_from([0.0, 0.0, 0.1, 0.5, 0.9] + ([1.5, 3.0] if up else []))
    settles = st.builds(Step, st.just("settle"), which=st.integers(0, 11), share=shares)
    kinds = draw(st.sampled_from([(takes, takes, moves, settles), (takes, moves, settles), (takes, settles)]))
    steps = st.lists(st.sampled_from(kinds).flatmap(lambda kind: kind), min_size=1, max_size=40)
    return quotas, draw(steps)


def carry_out(buckets: Buckets, step: Step) -> None:
    """Do it."""
    if step.kind == "take":
        buckets.take(step.cost, step.max_wait, only=step.only, may_settle=step.may_settle)
    elif step.kind == "move":
        buckets.now += step.us
    elif buckets.open():
        booked = buckets.open()[step.which % len(buckets.open())]
        buckets.settle(booked, step.share * booked.decision.granted)


FIRST, LATER, LEFT = Step("take", cost=0.1), Step("take", max_wait=math.inf), Step("settle", which=1, share=0.1)
UNRECORDED = Step("take", max_wait=math.inf, may_settle=False)
BACK, PAUSE = Step("settle"), Step("move", us=50_000)


@given(histories())
@example(([TokenBucket(1, 1.0, 1)], [FIRST, UNRECORDED, LEFT, BACK, LATER]))
@example(([TokenBucket(1, 1.0, 1)], [FIRST, LATER, LEFT, PAUSE, FIRST, BACK, BACK, LATER]))
@example(([TokenBucket(1, 1.0, 1)], [FIRST, UNRECORDED, UNRECORDED, LEFT, Step("settle", which=1), BACK, LATER]))
@up_to(1500)
def test_the_promise_holds_for_actual_units(history: tuple[list[TokenBucket], list[Step]]) -> None:
    """Under any order of takes, bookings, refunds, settlements up and down, and cancellations."""
    buckets = Buckets(history[0])
    for step in history[1]:
        carry_out(buckets, step)
    buckets.require_promise()


@given(histories(recorded=True, up=False), st.randoms(use_true_random=False))
@up_to(500)
def test_who_cancels_everything_has_used_nothing(
    history: tuple[list[TokenBucket], list[Step]], chance: random.Random
) -> None:
    """In any order, at any costs, with any time in between, whether the slots have come or not."""
    buckets = Buckets(history[0])
    for step in history[1]:
        if step.kind != "settle" or not step.share:
            carry_out(buckets, step)
    while buckets.open():
        buckets.settle(chance.choice(buckets.open()), 0.0)
        buckets.now += chance.choice([0, 0, 1, 1000])
    for quota, state in zip(buckets.quotas, buckets.states):
        assert state is None or reset_us(quota, state, buckets.now) == 0.0


THREE = [TokenBucket(1, 1.0, 3, 1.0)]
TAKE, CANCEL, QUEUE = Step("take"), Step("settle"), Step("take", max_wait=math.inf)
HALF_USED = [TAKE, CANCEL, TAKE, Step("settle", share=0.5)]


@given(histories(up=False))
@example(
    (
        THREE,
        [*HALF_USED, Step("take", cost=3.0, max_wait=math.inf), QUEUE, CANCEL, TAKE, CANCEL, Step("settle", share=0.9)],
    )
)
@example(
    (
        THREE,
        [
            *HALF_USED,
            Step("take", cost=3.0, max_wait=math.inf),
            QUEUE,
            QUEUE,
            CANCEL,
            CANCEL,
            CANCEL,
            QUEUE,
            Step("settle", share=0.9),
        ],
    )
)
@up_to(500)
def test_giving_back_makes_nobody_wait_longer(history: tuple[list[TokenBucket], list[Step]]) -> None:
    """Whatever somebody else would take next, now or later."""
    buckets = Buckets(history[0])
    for step in history[1]:
        if step.kind == "settle":
            waits = delays(buckets)
            carry_out(buckets, step)
            assert all(after <= before for before, after in zip(waits, delays(buckets)))
        else:
            carry_out(buckets, step)


def delays(buckets: Buckets) -> list[float]:
    """How long callers of some costs would wait now."""
    return [
        foresee(Take((Charge(quota, "key", cost),), math.inf), [state], buckets.now).delay
        for quota, state in zip(buckets.quotas, buckets.states)
        for cost in (0.1, 0.5, 1.0)
    ]


@given(histories(recorded=True, up=False))
@up_to(500)
def test_what_is_left_is_what_the_actual_costs_would_have_left(history: tuple[list[TokenBucket], list[Step]]) -> None:
    """Exactly with up to eight charges since the bucket was empty, and never less, where nothing is booked ahead."""
    quota = history[0][0]
    buckets = Buckets([quota])
    for step in history[1]:
        carry_out(buckets, Step(**{**vars(step), "max_wait": 0.0}))
        level, last, since_empty = 0.0, NOW, 0
        for booked in buckets.booked:
            level = drained(quota, level, booked.decision.now_us - last)
            since_empty = since_empty + 1 if level > 0 else 1
            level, last = level + booked.actual * quota.period_us, booked.decision.now_us
        state = current(quota, buckets.states[0], buckets.now)
        left, expected = drained(quota, state[0], buckets.now - state[1]), drained(quota, level, buckets.now - last)
        assert left >= expected - 1e-3
        if since_empty <= MAX_LOWS and quota.burst_allowance_factor == 1.0:
            assert left == pytest.approx(expected, abs=1e-3)


def test_a_refund_of_the_older_of_two_charges() -> None:
    """Of two units, one is left again."""
    buckets = Buckets([TokenBucket(2, 3600)])
    for _ in range(2):
        buckets.take(1)
        buckets.now += 7
    buckets.settle(buckets.booked[0], 0.0)
    assert buckets.take(1).allowed
    assert not buckets.take(1).allowed


@pytest.mark.parametrize("most_us", [0, 50, 2000])
def test_two_hundred_settlements_in_any_order(most_us: int) -> None:
    """Takes of ten units that all come to one leave exactly what they came to, at whatever pace."""
    chance = random.Random(most_us)
    quota = TokenBucket(10_000, 86_400 * 300)
    buckets = Buckets([quota])
    for _ in range(200):
        assert buckets.take(10).allowed
        buckets.now += chance.randint(0, most_us)
    for booked in chance.sample(buckets.booked, 200):
        buckets.settle(booked, 1)
        buckets.now += chance.randint(0, most_us)
    passed = (buckets.now - NOW) * quota.limit / quota.period_us
    assert buckets.used() == pytest.approx(200 - passed, abs=1e-9)


def test_logins_that_count_failures_only() -> None:
    """Hundreds of attempts that come in turns and are refunded leave nothing behind."""
    buckets, chance = Buckets([TokenBucket(3, 60)]), random.Random(1)
    for _ in range(400):
        buckets.now += chance.randint(1, 50_000)
        if len(buckets.open()) < 3:
            assert buckets.take(1).allowed
        else:
            buckets.settle(chance.choice(buckets.open()), 0.0)
    for booked in buckets.open():
        buckets.settle(booked, 0.0)
    assert buckets.used() == 0.0
