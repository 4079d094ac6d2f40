"""Two versions of a quota on the values of one key, in memory and on Redis, and random histories of both."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from asgi_ratelimit.algorithms import decide, pack, settle, settlement_of, unpack
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.direct_script import DirectScript
from tests.support.histories import ROUNDING, Ledger

NOW = 1_800_000_000_000_000

Versions: TypeAlias = tuple[Quota, Quota]


@dataclass
class Admitted:
    """What one version has admitted, when, and what it really came to."""

    version: int
    decision: Decision
    actual: float
    is_settled: bool = False

    @property
    def slot_us(self) -> int:
        return round(self.decision.now_us) + round(self.decision.delay * 1e6)


@dataclass
class TwoVersions:
    """The values of one key under both versions of its quota, and what both have admitted."""

    quotas: Versions
    script: DirectScript | None = None
    now: int = NOW
    values: dict[str, bytes] = field(default_factory=dict)
    admitted: list[Admitted] = field(default_factory=list)
    births: int = 0

    def take(self, version: int, cost: float, max_wait: float = 0.0, *, may_settle: bool = True) -> Decision:
        """A take by a process with this version."""
        charge = Charge(self.quotas[version], "key", cost)
        take = Take((charge,), max_wait, may_settle=may_settle)
        self.births += 2
        value = self.values.get(charge.bucket)
        decision, (after,) = decide(take, [unpack(charge.quota, value)], self.now, self.births + 1)
        self._write(take, charge, None if after is None else pack(charge.quota, after))
        if decision.allowed:
            self.admitted.append(Admitted(version, decision, cost))
        return decision

    def settle(self, admitted: Admitted, actual: float) -> None:
        """A settlement by the process that took it."""
        admitted.is_settled, admitted.actual = True, actual
        settlement = settlement_of(admitted.decision, [actual])
        assert settlement
        charge = settlement.charges[0]
        self.births += 2
        value = self.values.get(charge.bucket)
        (after,) = settle(settlement, [unpack(charge.quota, value)], self.now, self.births + 1)
        self._write(settlement, charge, None if after is None else pack(charge.quota, after))

    def _write(self, action: Take | Settlement, charge: Charge, value: bytes | None) -> None:
        if value is not None:
            self.values[charge.bucket] = value
        if self.script is not None:
            self.script.call([action], self.now, self.births)
            assert self.script.value(charge) == self.values.get(charge.bucket)

    def open(self) -> list[Admitted]:
        """What is not settled."""
        return [each for each in self.admitted if not each.is_settled]

    def payback(self, version: int) -> float:
        """How long a window of a version takes at most to pay back what all charges came to beyond their costs."""
        quota = self.quotas[version]
        if isinstance(quota, TokenBucket):
            return 0.0
        units = sum(max(each.actual - each.decision.granted, 0.0) for each in self.admitted)
        window_us = quota.period_us if isinstance(quota, FixedWindow) else quota.part_us * (quota.buckets + 1)
        return math.ceil(units / quota.limit) * window_us / 1e6

    def retry_after(self, version: int, cost: float) -> float:
        """How long somebody who wants so many units now is refused."""
        charge = Charge(self.quotas[version], "key", cost)
        decision, _ = decide(Take((charge,)), [unpack(charge.quota, self.values.get(charge.bucket))], self.now)
        return decision.retry_after

    def require_each_promise(self) -> None:
        """No version has admitted more actual units than its own quota promises, in any interval."""
        for version, quota in enumerate(self.quotas):
            ledger = Ledger(quota)
            for each in self.admitted:
                if each.version == version:
                    ledger.admit(each.slot_us, min(each.actual, each.decision.granted))
            ledger.require_ceiling()

    def require_both_quotas_together(self) -> None:
        """In no interval have both admitted more actual units than the sum of both quotas."""
        entries = sorted((each.slot_us, min(each.actual, each.decision.granted)) for each in self.admitted)
        for number, (first, _) in enumerate(entries):
            total = Fraction(0)
            for last, units in entries[number:]:
                total += Fraction(units)
                most = sum(most_units(quota, first, last) for quota in self.quotas)
                assert total <= most + ROUNDING, (self.quotas, first - NOW, last - NOW, float(total), float(most))


def most_units(quota: Quota, first_us: int, last_us: int) -> Fraction:
    """The most units that a quota lets pass from one moment to another, both included."""
    period, span = round(quota.period_us), last_us - first_us
    if isinstance(quota, TokenBucket):
        return Fraction(quota.burst) + span * Fraction(quota.limit) / period
    if isinstance(quota, FixedWindow):
        return Fraction(quota.limit) * (last_us // period - first_us // period + 1)
    return Fraction(quota.limit) * (span // period + 1)


def random_quota(chance: random.Random, kind: type) -> Quota:
    """A quota of that kind."""
    limit, period = chance.choice([1, 2, 2.5, 4, 10, 0.5]), chance.choice([1.0, 1.0, 3.0])
    if kind is FixedWindow:
        return FixedWindow(math.ceil(limit), period, name="quota")
    if kind is RollingWindow:
        return RollingWindow(math.ceil(limit), period, chance.choice([1, 2, 5, 10]), name="quota")
    burst, factor = chance.choice([1, 2, 3, 8.5, 20]), chance.choice([1.0, 1.0, 1.0, 0.5, 0.3])
    return TokenBucket(limit, period, burst, factor, name="quota")


def random_versions(chance: random.Random) -> Versions:
    """Two of one kind, mostly; and of windows, mostly of one key."""
    kinds = [TokenBucket, TokenBucket, TokenBucket, FixedWindow, RollingWindow]
    kind = chance.choice(kinds)
    one = random_quota(chance, kind)
    other = random_quota(chance, kind if chance.random() < 0.9 else chance.choice(kinds))
    if isinstance(other, FixedWindow | RollingWindow) and chance.random() < 0.9:
        if isinstance(one, FixedWindow) and isinstance(other, FixedWindow):
            other = FixedWindow(other.limit, one.period, name="quota")
        elif isinstance(one, RollingWindow) and isinstance(other, RollingWindow):
            other = RollingWindow(other.limit, one.period, one.buckets, name="quota")
    return one, other


@dataclass(frozen=True)
class Habits:
    """What each version does: how long it waits, and to which shares of their costs it settles."""

    waits: Sequence[Sequence[float]]
    shares: Sequence[Sequence[float]]
    recorded: float
    weights: Sequence[int]


def random_habits(chance: random.Random, patient: Sequence[bool] = (True, True)) -> Habits:
    """A version that is not patient books nothing ahead, and is never debited."""
    waits = [chance.choice([[0.0], [0.0, math.inf], [2.0, 5.0, math.inf]]) if each else [0.0] for each in patient]
    debits = chance.choice([[], [1.5, 3.0]])
    shares = [[0.0, 0.0, 0.1, 0.5, 0.9, *(debits if each else [])] for each in patient]
    weights = chance.choice([(5, 2, 3), (4, 3, 3), (6, 1, 1), (3, 2, 5)])
    return Habits(waits, shares, chance.choice([0.5, 1.0]), weights)


def random_step(chance: random.Random, versions: TwoVersions, habits: Habits) -> None:
    """A take, some time, or a settlement of one of the takes."""
    unit = round(min(quota.period_us / quota.limit for quota in versions.quotas))
    kind = chance.choices(("take", "move", "settle"), habits.weights)[0]
    if kind == "move":
        versions.now += chance.choice([1, 7, unit // 5, unit // 2, unit, 3 * unit, 20 * unit, chance.randint(1, unit)])
    elif kind == "take":
        version = chance.randrange(2)
        most = versions.quotas[version].most
        cost = chance.choice([cost for cost in (1.0, 1.0, 0.5, 0.25, 2.0, 0.1, most, most / 2) if cost <= most])
        may_settle = chance.random() < habits.recorded
        versions.take(version, cost, chance.choice(habits.waits[version]), may_settle=may_settle)
    elif versions.open():
        each = chance.choice(versions.open())
        versions.settle(each, chance.choice(habits.shares[each.version]) * each.decision.granted)


def emptied(quota: Quota, now: int) -> TwoVersions:
    """A bucket under one version, all of whose units have just been taken."""
    versions = TwoVersions((quota, quota), now=now)
    versions.take(0, quota.most)
    return versions
