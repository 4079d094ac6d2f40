"""Two versions of a quota, whatever its kind, in turns on one value: what either of them takes counts for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import decide, pack, settle, settlement_of, unpack
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.examples import up_to
from tests.support.histories import Ledger

NOW = 1_800_000_000_000_000.0
SECOND = 1_000_000.0

Versions: TypeAlias = tuple[Quota, Quota]
Entry: TypeAlias = tuple[float, float]


@dataclass
class Shared:
    """The value of one bucket, the time, and what was admitted: the times of slots, and actual costs."""

    value: bytes | None = None
    now: float = NOW
    decisions: list[Decision] = field(default_factory=list)
    births: int = 1

    def take(self, quota: Quota, cost: float = 1, max_wait: float = 0.0) -> Decision:
        """A take by a process with this version of the quota."""
        self.births += 1
        take = Take((Charge(quota, "key", cost),), max_wait, may_settle=True)
        decision, (after,) = decide(take, [unpack(quota, self.value)], self.now, self.births)
        if after is not None:
            self.value = pack(quota, after)
        if decision.allowed:
            self.decisions.append(decision)
        return decision

    def settle(self, decision: Decision, actual: float) -> None:
        """A settlement by the process that took it."""
        settlement = settlement_of(decision, [actual])
        assert settlement is not None
        quota = settlement.charges[0].quota
        self.births += 1
        (after,) = settle(settlement, [unpack(quota, self.value)], self.now, self.births)
        if after is not None:
            self.value = pack(quota, after)

    def remaining(self, quota: Quota) -> float:
        """The most units that a version would admit now."""
        take = Take((Charge(quota, "other", 1),))
        decision, _ = decide(take, [unpack(quota, self.value)], self.now)
        return decision.remaining + decision.allowed * 1.0


LIMITS = st.sampled_from([1, 2.5, 4, 10])
BURSTS = st.sampled_from([1, 3, 8.5])


@st.composite
def buckets(draw: st.DrawFn, bursts: st.SearchStrategy[float] = BURSTS) -> Versions:
    periods, factors = st.sampled_from([1.0, 3.0]), st.sampled_from([1.0, 1.0, 0.5])
    one, other = (TokenBucket(draw(LIMITS), draw(periods), draw(bursts), draw(factors)) for _ in range(2))
    return one, other


FIXED: st.SearchStrategy[Versions] = st.tuples(*[st.builds(FixedWindow, LIMITS, st.just(3))] * 2)
ROLLING: st.SearchStrategy[Versions] = st.tuples(*[st.builds(RollingWindow, LIMITS, st.just(3), st.just(6))] * 2)
WINDOWS = FIXED | ROLLING

COSTS = st.sampled_from([0.5, 1, 2])
PASSED_US = st.sampled_from([0, 1, 1_000, 400_000, 3_000_000])


@given(both=buckets() | WINDOWS, takes=st.lists(st.tuples(st.integers(0, 1), COSTS), max_size=40))
@up_to(300)
def test_at_one_moment_they_admit_as_one(both: Versions, takes: Sequence[tuple[int, float]]) -> None:
    """A version admits what its quota has room for beside all that both have admitted, neither less nor more."""
    shared, used = Shared(), 0.0
    for version, cost in takes:
        allowed = shared.take(both[version], cost).allowed
        assert allowed == (used + cost <= both[version].most)
        used += cost * allowed


TURNS = st.lists(st.tuples(st.integers(0, 1), COSTS, PASSED_US), max_size=60)


def admitted(both: Versions, turns: Sequence[tuple[int, float, int]]) -> list[Entry]:
    """What both admit in turns: when, and how much."""
    shared, entries = Shared(), list[Entry]()
    for version, cost, passed_us in turns:
        shared.now += passed_us
        if shared.take(both[version], cost).allowed:
            entries.append((shared.now, cost))
    return entries


def rate(quota: Quota) -> float:
    """Units a second."""
    return quota.limit / quota.period


def require(quota: Quota, entries: Sequence[Entry]) -> None:
    """In no interval more than a quota promises."""
    ledger = Ledger(quota)
    for at, units in entries:
        ledger.admit(round(at), units)
    ledger.require_ceiling()


@given(both=WINDOWS, turns=TURNS)
@up_to(300)
def test_in_windows_both_together_admit_what_the_larger_limit_admits(
    both: Versions, turns: Sequence[tuple[int, float, int]]
) -> None:
    """In any interval, where nothing is booked ahead."""
    require(max(both, key=lambda quota: quota.limit), admitted(both, turns))


@given(both=buckets(st.just(3)), turns=TURNS)
@up_to(300)
def test_buckets_of_one_burst_together_admit_what_the_higher_rate_admits(
    both: Versions, turns: Sequence[tuple[int, float, int]]
) -> None:
    """In any interval, where nothing is booked ahead."""
    require(max(both, key=rate), admitted(both, turns))


@given(both=buckets(), turns=TURNS)
@up_to(300)
def test_buckets_of_any_burst_together_admit_one_burst(both: Versions, turns: Sequence[tuple[int, float, int]]) -> None:
    """The larger one; and no more than the sum of both rates, since the smaller version refuses nobody for longer than
    its own burst takes to drain, whatever the other one has admitted.
    """
    larger = max(quota.most for quota in both)
    require(TokenBucket(sum(map(rate, both)), burst=larger), admitted(both, turns))


def test_what_has_drained_at_the_higher_rate_stays_used_at_the_lower_one() -> None:
    """After six seconds, a unit of ten is free under the lower rate, whatever the other version took by then."""
    shared, low, high = Shared(), TokenBucket(10, 60), TokenBucket(100, 60, burst=10)
    assert shared.take(low, 10).allowed
    shared.now += 6 * SECOND
    assert shared.take(high, 1).allowed
    assert shared.remaining(low) == 1
    assert shared.remaining(high) == 9


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, float, int, int]]:
    """A version, its cost, the microseconds before, and what is settled: the number of a decision, or none below 0."""
    return draw(st.lists(st.tuples(st.integers(0, 1), COSTS, PASSED_US, st.integers(-5, 8)), max_size=50))


@given(both=WINDOWS, history=steps(), share=st.sampled_from([0.0, 0.5]))
@up_to(300)
def test_windows_give_back_to_both(
    both: Versions, history: Sequence[tuple[int, float, int, int]], share: float
) -> None:
    """At one moment, what is settled under one version is free under the other one, too; whatever the order."""
    shared, used = Shared(), 0.0
    for version, cost, _, settled in history:
        assert shared.remaining(both[version]) == max(math.floor(both[version].most - used), 0)
        used += cost * shared.take(both[version], cost).allowed
        if 0 <= settled < len(shared.decisions):
            decision = shared.decisions.pop(settled)
            used -= decision.granted * (1 - share)
            shared.settle(decision, decision.granted * share)


@given(both=buckets() | WINDOWS, history=steps(), share=st.sampled_from([0.0, 0.5]))
@up_to(300)
def test_each_version_keeps_its_promise_for_actual_costs(
    both: Versions, history: Sequence[tuple[int, float, int, int]], share: float
) -> None:
    """Whatever is settled, and whichever version has written the value by then."""
    shared = Shared()
    entries: dict[int, list[float | Quota]] = {}
    for version, cost, passed_us, settled in history:
        shared.now += passed_us
        decision = shared.take(both[version], cost)
        if decision.allowed:
            entries[id(decision)] = [shared.now, cost, version]
        if 0 <= settled < len(shared.decisions):
            decision = shared.decisions[settled]
            if entries[id(decision)][1] == decision.granted:
                entries[id(decision)][1] = decision.granted * share
                shared.settle(decision, decision.granted * share)
    for number, quota in enumerate(both):
        require(quota, [(at, units) for at, units, version in entries.values() if version == number])


@given(both=buckets() | WINDOWS, turns=TURNS, ahead=st.sampled_from([0.0, 5.0, math.inf]))
@up_to(300)
def test_who_has_booked_nothing_never_waits_longer_than_for_an_emptied_bucket(
    both: Versions, turns: Sequence[tuple[int, float, int]], ahead: float
) -> None:
    """The first version books ahead, and the other one does not; whatever they do in turns."""
    assume(both[0].stamp != both[1].stamp)
    shared, late = Shared(), both[1]
    for version, cost, passed_us in turns:
        shared.now += passed_us
        shared.take(both[version], cost, 0.0 if version else ahead)
        emptied = Shared(now=shared.now)
        emptied.take(late, late.most)
        for units in (0.5, late.most):
            value = shared.value
            waited = shared.take(late, units).retry_after
            shared.value = value
            assert waited <= emptied.take(late, units).retry_after
