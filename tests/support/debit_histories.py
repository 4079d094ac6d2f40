"""Random histories of a window whose charges come to more or less, while its limit changes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction

from asgi_ratelimit.algorithms import (
    State,
    current,
    decide,
    foresee,
    pack,
    reset_us,
    settle,
    settlement_of,
    unpack,
    used,
)
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.quotas import FixedWindow, RollingWindow
from tests.support.direct_script import DirectScript
from tests.support.histories import ROUNDING

START = 1_800_000_000_000_000

Window = FixedWindow | RollingWindow


@dataclass
class Used:
    """What was admitted under which quota, and what it really came to."""

    decision: Decision
    quota: Window
    actual: float
    is_settled: bool = False

    @property
    def slot_us(self) -> int:
        return round(self.decision.now_us) + round(self.decision.delay * 1e6)


@dataclass
class DebitedWindow:
    """The value of a window, and all that was admitted; ``script`` has the same value, to the bit."""

    script: DirectScript | None = None
    now: int = START
    value: bytes | None = None
    used: list[Used] = field(default_factory=list)
    births: int = 0

    def state(self, quota: Window) -> State | None:
        return unpack(quota, self.value)

    def take(self, quota: Window, cost: float, max_wait: float = 0.0) -> Decision:
        """A take by somebody who finds room for it beside all that was really used by then."""
        take, self.births = Take((Charge(quota, "key", cost),), max_wait, may_settle=True), self.births + 2
        decision, (after,) = decide(take, [self.state(quota)], self.now, self.births + 1)
        self._write(take, quota, after)
        if decision.allowed:
            self.used.append(Used(decision, quota, cost))
            self.require_room(self.used[-1])
        return decision

    def settle(self, used: Used, actual: float) -> None:
        """Somebody says what a take came to; if that is less, nobody waits longer."""
        before = self.state(used.quota)
        less, used.is_settled, used.actual = actual < used.actual, True, actual
        settlement = settlement_of(used.decision, [actual])
        assert settlement
        self.births += 2
        (after,) = settle(settlement, [before], self.now, self.births + 1)
        self._write(settlement, used.quota, after)
        if before is not None and after is not None and less:
            self.require_no_longer_waits(used.quota, before, after)

    def _write(self, action: Take | Settlement, quota: Window, after: State | None) -> None:
        if after is not None:
            self.value = pack(quota, after)
        if self.script is not None:
            self.script.call([action], self.now, self.births)
            assert self.script.value(Charge(quota, "key")) == self.value

    def require_room(self, new: Used) -> None:
        """What has just been admitted fits beside the actual costs of all intervals around it.

        What another version has booked ahead keeps its slots, and does not count.
        """
        quota, at = new.quota, new.slot_us
        counted = [each for each in self.used if each.quota is quota or each.decision.delay == 0.0]
        for first, last in intervals(quota, at, [each.slot_us for each in counted]):
            units = sum(Fraction(repr(float(each.actual))) for each in counted if first <= each.slot_us < last)
            assert units <= Fraction(repr(float(quota.limit))) + ROUNDING, (quota, at - START, float(units))

    def require_no_longer_waits(self, quota: Window, before: State, after: State) -> None:
        """At no later time, and for no cost."""
        part_us = quota.part_us if isinstance(quota, RollingWindow) else quota.period_us
        for later in (0, 1, part_us // 2, part_us, 2 * part_us, quota.period_us, 5 * quota.period_us):
            for cost in (0.1, 1.0, quota.limit):
                take = Take((Charge(quota, "key", cost),), math.inf)
                waits = [foresee(take, [state], self.now + later).delay for state in (before, after)]
                assert waits[1] <= waits[0], (quota, later, cost, waits, before, after)

    def require_paid_back(self, quota: Window) -> None:
        """Once the bucket is as good as new, all that was used fits into the windows that are over by then."""
        state = self.state(quota)
        over = self.now + (0.0 if state is None else reset_us(quota, current(quota, state, self.now), self.now))
        if isinstance(quota, FixedWindow):
            windows = over // quota.period_us - START // quota.period_us
        else:
            windows = math.ceil((over // quota.part_us - START // quota.part_us) / (quota.buckets + 1))
        total = sum(Fraction(repr(float(each.actual))) for each in self.used)
        assert total <= int(windows) * Fraction(repr(float(quota.limit))) + ROUNDING, (quota, windows, float(total))

    def units(self, quota: Window) -> float:
        """The units that count."""
        state = self.state(quota)
        return 0.0 if state is None else used(quota, state, self.now)

    def open(self) -> list[Used]:
        return [each for each in self.used if not each.is_settled]


def intervals(quota: Window, at: int, slots: list[int]) -> list[tuple[int, int]]:
    """The intervals around a slot that the promise of a quota is about, each from the first to before the second."""
    period = round(quota.period_us)
    if isinstance(quota, FixedWindow):
        return [(at // period * period, at // period * period + period)]
    return [(first, first + period) for first in {slot for slot in slots if at - period < slot <= at}]


def random_versions(chance: random.Random) -> list[Window]:
    """One window, mostly, or the same under two limits."""
    limits = chance.sample([1, 2, 3, 5, 10, 2.5, 1.1, 1000], chance.choice([1, 1, 2]))
    if chance.random() < 0.5:
        return [FixedWindow(limit, 10, name="quota") for limit in limits]
    buckets = chance.choice([1, 2, 5, 10])
    return [RollingWindow(limit, 10, buckets, name="quota") for limit in limits]


def random_history(chance: random.Random, quotas: list[Window], window: DebitedWindow) -> None:
    """Takes, bookings, settlements up and down, time that goes by, and a version that gives way to the other."""
    quota, waits = quotas[0], chance.choice([[0.0], [0.0, 0.0, 12.0], [0.0, math.inf]])
    weights = chance.choice([(5, 4, 2), (4, 4, 3), (6, 5, 1), (5, 5, 0)])
    for _ in range(chance.randint(3, 50)):
        quota = chance.choice([quota, quota, quota, *quotas])
        kind = chance.choices(("take", "settle", "move"), weights)[0]
        if kind == "take":
            cost = chance.choice([1, 1, 0.5, 0.1, 2, quota.limit, quota.limit / 2])
            window.take(quota, min(cost, quota.limit), chance.choice(waits))
        elif kind == "move":
            window.now += chance.choice([1, 400_000, 1_000_000, 3_000_000, 10_000_000, 11_000_000, 25_000_000])
        elif window.open():
            each = chance.choice(window.open())
            shares = [0.0, 0.0, 0.5, 0.9, 1.1, 1.5, 3.0, 10.0]
            window.settle(each, round(each.decision.granted * chance.choice(shares), 6))
