"""The buckets of one key, and random histories of what is taken from them and given back."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State, decide, settle, settlement_of, used
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.histories import Ledger

NOW = 1_800_000_000_000_000.0


States: TypeAlias = Sequence[State | None]
OtherStore: TypeAlias = Callable[[Take | Settlement, States, States, float], None]
"""Told of an action, the states of its charges before and after it, and its time."""


@dataclass
class Booked:
    """One admitted take, and what it really came to, of each quota."""

    decision: Decision
    actual: float
    is_settled: bool = False

    @property
    def slot_us(self) -> float:
        return self.decision.now_us + round(self.decision.delay * 1e6)


@dataclass
class Buckets:
    """The buckets of one key under some quotas, and everything that was admitted."""

    quotas: Sequence[Quota]
    other_store: OtherStore | None = None
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
        before = [self.states[number] for number in numbers]
        decision, written = decide(take, before, self.now, len(self.booked) * 9)
        self._write(take, list(numbers), before, written)
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
        before = [self.states[number] for number in numbers]
        self._write(settlement, numbers, before, settle(settlement, before, self.now))

    def _write(
        self, action: Take | Settlement, numbers: list[int], before: States, written: Sequence[State | None]
    ) -> None:
        after = [state or unchanged for state, unchanged in zip(written, before)]
        if self.other_store is not None:
            self.other_store(action, before, after, self.now)
        for number, state in zip(numbers, after):
            self.states[number] = state

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
                found.append((booked.slot_us, Fraction(min(booked.actual, booked.decision.granted))))
        return sorted(found)

    def require_promise(self) -> None:
        """In no interval more actual units than the quota says: of a token bucket, as one of fractions says."""
        for number, quota in enumerate(self.quotas):
            if not isinstance(quota, TokenBucket):
                ledger = Ledger(quota)
                for slot, units in self.entries(number):
                    ledger.admit(round(slot), float(units))
                ledger.require_ceiling()
                continue
            level, last, rate = Fraction(0), NOW, Fraction(quota.limit) / round(quota.period_us)
            for slot, units in self.entries(number):
                level = max(level - round(slot - last) * rate, Fraction(0)) + units
                last = slot
                assert level <= Fraction(quota.burst) + Fraction(1, 10**6), (quota, slot - NOW, float(level))


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
    is_ahead: bool | None = None
    """Whether the slot of what is settled lies ahead; ``None`` where it does not matter."""


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


def random_quota(chance: random.Random, name: str, windows: float) -> Quota:
    """A window, with that chance, or else a token bucket."""
    limit, period = chance.choice([1, 2, 3, 5, 10, 0.5, 2.5]), chance.choice([1.0, 3.0, 10.0])
    if chance.random() < windows:
        if chance.random() < 0.5:
            return FixedWindow(math.ceil(limit), period, name=name)
        return RollingWindow(math.ceil(limit), period, chance.choice([1, 2, 5, 10]), name=name)
    burst, factor = chance.choice([1, None, 2, 3, 5.5, 10, 20]), chance.choice([1.0, 1.0, 1.0, 0.5, 0.3])
    return TokenBucket(limit, period, burst, factor, name=name)


def random_history(chance: random.Random, most: int = 40, windows: float = 0.0) -> tuple[list[Quota], list[Step]]:
    """Up to three quotas, and many slots ahead, of which some are cancelled."""
    quotas = [random_quota(chance, f"quota {number}", windows) for number in range(chance.choice([1, 1, 2, 3]))]
    unit = round(min(quota.period_us / quota.limit for quota in quotas))
    largest = min(quota.burst if isinstance(quota, TokenBucket) else quota.limit for quota in quotas)
    costs = [cost for cost in (1.0, 1.0, 1.0, 0.5, 0.25, 2.0, 3.0, 0.1, largest, largest / 2) if cost <= largest]
    recorded, moves = chance.choice([0.6, 1.0]), [1, 7, unit // 5, unit // 2, unit, 3 * unit, 20 * unit]

    def step(kind: str) -> Step:
        if kind == "settle":
            return Step(kind, which=chance.randrange(60), share=chance.choice([0.0, 0.0, 0.0, 0.1, 0.5, 0.9]))
        if kind == "move":
            return Step(kind, us=chance.choice([*moves, chance.randint(1, 3 * unit)]))
        only, wait = chance.choice([None, None, 0, 1, 2]), chance.choice([0.0, math.inf, math.inf, 2 * unit / 1e6])
        return Step(kind, 0, chance.choice(costs), wait, only, chance.random() < recorded)

    weights = chance.choice([(5, 2, 3), (4, 3, 3), (6, 1, 3), (3, 2, 5)])
    kinds = chance.choices(("take", "move", "settle"), weights, k=chance.randint(5, most))
    return quotas, [step(kind) for kind in kinds]


def directed_history(chance: random.Random) -> tuple[list[Quota], list[Step]]:
    """Slots ahead, some of which are cancelled; then charges above them, settlements, and whatever can be had."""
    limit, bursts, factors = chance.choice([1, 1, 2, 5]), [1, 2, 3, 5, 10, 20], [1.0, 1.0, 1.0, 1.0, 0.5]
    limits = [
        limit if chance.random() < 0.6 else chance.choice([1, 2, 0.5, 3]) for _ in range(chance.choice([1, 2, 3]))
    ]
    quotas = [
        TokenBucket(each, 1.0, chance.choice(bursts), chance.choice(factors), name=f"quota {number}")
        for number, each in enumerate(limits)
    ]
    unit, largest, recorded = 1_000_000 // limit, min(quota.burst for quota in quotas), chance.choice([1.0, 0.7, 0.3])
    costs = [1.0, 1.0, 0.5, 0.25, 0.1, largest, largest / 2, 2.0, 3.0]
    shares = [0.0, 0.0, 0.0, 0.1, 0.5, 0.9, *chance.choice([[], [], [1.5, 3.0]])]

    def take(*waits: float) -> Step:
        only = chance.choice([None, None, *range(len(quotas))])
        cost = min(chance.choice(costs), largest)
        if only is not None and chance.random() < 0.3:
            cost = quotas[only].burst / chance.choice([1, 2])
        return Step("take", 0, cost, chance.choice(waits), only, chance.random() < recorded)

    def move() -> Step:
        return Step("move", us=chance.choice([1, unit // 5, unit // 2, unit, 2 * unit, chance.randint(1, 3 * unit)]))

    def back(is_ahead: bool | None) -> Step:
        return Step("settle", which=chance.randrange(60), share=chance.choice(shares), is_ahead=is_ahead)

    steps = [take(math.inf) for _ in range(chance.randint(2, 10))]
    for _ in range(chance.randint(1, 4)):
        steps += [back(True) for _ in range(chance.randint(1, 5))] + [move()][: chance.randint(0, 4)]
        steps += [take(math.inf, math.inf, 0.0) for _ in range(chance.randint(1, 6))]
        steps += [back(False) for _ in range(chance.randint(0, 3))] + [move()][: chance.randint(0, 3)]
        steps += [back(chance.choice([False, False, True])) for _ in range(chance.randint(0, 3))]
        steps += [take(0.0, 0.0, math.inf) for _ in range(chance.randint(0, 3))]
    return quotas, steps + [step for _ in range(chance.randint(1, 6)) for step in (*all_of(chance, quotas), move())]


def all_of(chance: random.Random, quotas: Sequence[Quota]) -> list[Step]:
    """Takes of whatever one of the quotas has now."""
    only = chance.randrange(len(quotas))
    most = quotas[only].most
    costs = sorted({most, most * 0.9, most / 2, *[cost for cost in (1.0, 0.5, 0.25, 0.1) if cost <= most]})
    return [Step("take", cost=cost, only=only) for cost in reversed(costs)]


def carry_out(buckets: Buckets, step: Step) -> None:
    """Do it."""
    if step.kind == "take":
        buckets.take(step.cost, step.max_wait, only=step.only, may_settle=step.may_settle)
    elif step.kind == "move":
        buckets.now += step.us
    else:
        among = [booked for booked in buckets.open() if step.is_ahead in (None, booked.slot_us > buckets.now)]
        if among:
            booked = among[step.which % len(among)]
            buckets.settle(booked, step.share * booked.decision.granted)
