"""The promise of each kind of quota, for the units that were really used, whatever is taken, cancelled and settled.

``python -m tests.algorithms.test_promise 0 100000`` runs so many histories from the command line, and prints those that
broke it.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from asgi_ratelimit import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.algorithms import Booked
from asgi_ratelimit.algorithms.take import State, decide, place_of, settle, unused
from tests.algorithms.charged import Charged
from tests.support.examples import up_to

START_US = 1_800_000_000_000_000.0

# The part of a unit that sums of doubles may be wrong by, for each unit that could be used.
ROUNDING = 1e-6


@dataclass(eq=False)
class Use:
    """Units that are used at the time ``at``, as far as they are known by now; ``order`` is that of all changes."""

    at: float
    units: float
    order: int
    is_debit: bool = False


@dataclass(eq=False)
class Call:
    """A take that was allowed, until it is settled: its use of each bucket that it was charged to, and its records."""

    uses: dict[int, Use]
    booked: dict[int, Booked]


class History:
    """Buckets of one to three quotas, and what was really used of them."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self.quotas = quotas
        self.now = START_US
        self.states: list[State] = [unused(quota, START_US) for quota in quotas]
        self.uses: list[list[Use]] = [[] for _ in quotas]
        self.calls: list[Call] = []
        self.changes = count()

    def take(self, costs: dict[int, float], max_wait: float) -> bool:
        """Take these costs of the quotas of these numbers, all or nothing; whether it is allowed."""
        charges = [Charged(self.quotas[number], cost) for number, cost in costs.items()]
        states = [self.states[number] for number in costs]
        before = list(states)
        wait, after = decide(charges, states, self.now, max_wait)
        assert states == before
        if after is None:
            assert wait > max_wait or wait == math.inf
            return False
        assert wait <= max_wait
        slot, order = self.now + wait, next(self.changes)
        call = Call({}, {})
        for (number, cost), state in zip(costs.items(), after):
            self.states[number] = state
            call.booked[number] = Booked(state.at, slot, place_of(self.quotas[number], state), cost)
            call.uses[number] = Use(slot, cost, order)
            self.uses[number].append(call.uses[number])
        self.calls.append(call)
        return True

    def fill(self) -> None:
        """Take what there is of each quota by itself, to a sixty-fourth of the most: none is there by mistake."""
        for number, quota in enumerate(self.quotas):
            for halves in range(7):
                self.take({number: quota.most / 2**halves}, 0.0)

    def settle(self, call: Call, actual: dict[int, float]) -> None:
        """Settle a call at its actual costs, which may be above its charges."""
        self.calls.remove(call)
        order = next(self.changes)
        for number, units in actual.items():
            quota, use, booked = self.quotas[number], call.uses[number], call.booked[number]
            self.states[number] = settle(quota, self.states[number], self.now, booked, units)
            if units > booked.cost:
                at = debited_at(quota, use.at, self.now)
                self.uses[number].append(Use(at, units - booked.cost, order, is_debit=True))
            else:
                use.units = units

    def excess(self) -> float:
        """By how many units more than promised were used of any of the buckets."""
        return max(map(excess, self.quotas, self.uses))


def debited_at(quota: Quota, slot: float, now: float) -> float:
    """When units count that were used beyond a charge: now, unless the part of their slot still counts."""
    if isinstance(quota, RollingWindow) and slot // quota.part_us >= now // quota.part_us - quota.buckets:
        return slot
    return now


def excess(quota: Quota, uses: Sequence[Use]) -> float:
    """By how many units the worst interval is above the promise of its quota.

    A debit is used whatever the bucket holds. So the promise is to each take: its interval holds no more than it may,
    except for what was debited after it was booked.
    """
    if isinstance(quota, TokenBucket):
        return _excess_of_bucket(quota, uses)
    if isinstance(quota, FixedWindow):
        return _excess_of_windows(quota, uses)
    return _excess_of_rolling(quota, uses)


def _in_order(uses: Sequence[Use]) -> list[Use]:
    """By their times, and those of one moment in the order in which they were made."""
    return sorted(uses, key=lambda use: (use.at, use.order))


def _unforeseen(uses: Sequence[Use], last: Use) -> float:
    """The units that were debited after a take was booked, and before its slot."""
    return sum([use.units for use in uses if use.is_debit and use.order > last.order and use.at <= last.at])


def _excess_of_bucket(quota: TokenBucket, uses: Sequence[Use]) -> float:
    """At most ``burst + T * rate`` units in any interval of length T: a leaky bucket of the actual units holds it."""
    level, at, worst = 0.0, START_US, 0.0
    ordered = _in_order(uses)
    for use in ordered:
        level = max(level - (use.at - at) * quota.limit / (quota.period * 1e6), 0.0) + use.units
        at = use.at
        if not use.is_debit and level - quota.burst > worst:
            worst = max(worst, level - quota.burst - _unforeseen(ordered, use))
    return worst


def _excess_of_windows(quota: FixedWindow, uses: Sequence[Use]) -> float:
    """At most ``limit`` units in each window."""
    windows: dict[float, list[Use]] = {}
    for use in uses:
        windows.setdefault(use.at // quota.period_us, []).append(use)
    return max([_excess_within(quota.limit, _in_order(window)) for window in windows.values()], default=0.0)


def _excess_of_rolling(quota: RollingWindow, uses: Sequence[Use]) -> float:
    """At most ``limit`` units in any interval of length ``period``, both of its ends included."""
    ordered, worst = _in_order(uses), 0.0
    for last, use in enumerate(ordered):
        if not use.is_debit:
            interval = [each for each in ordered[: last + 1] if each.at >= use.at - quota.period_us]
            worst = max(worst, sum([each.units for each in interval]) - quota.limit - _unforeseen(interval, use))
    return worst


def _excess_within(limit: float, uses: Sequence[Use]) -> float:
    total, worst = 0.0, 0.0
    for use in uses:
        total += use.units
        if not use.is_debit and total - limit > worst:
            worst = max(worst, total - limit - _unforeseen(uses, use))
    return worst


def random_quota(r: random.Random, name: str) -> Quota:
    """A quota of any kind, with numbers that are whole and numbers that are not."""
    kind = r.choice(["bucket", "bucket", "fixed", "rolling"])
    period = r.choice([1, 1, 10, 60])
    if kind == "bucket":
        limit, burst = r.choice([1, 2, 5, 10, 60, 7 / 3]), r.choice([1, 2, 3, 5, 10, 20, 2.5])
        return TokenBucket(limit, period, burst, r.choice([1.0, 1.0, 0.5, 0.1, r.uniform(0.01, 1)]), name)
    limit = r.choice([1, 2, 3, 5, 10, 20, 2.5, r.uniform(1, 30)])
    if kind == "fixed":
        return FixedWindow(limit, period, name)
    return RollingWindow(limit, period, r.choice([1, 2, 5, 10]), name)


def random_quotas(r: random.Random) -> list[Quota]:
    """One to three quotas, or a large bucket beside one that spaces what both are charged."""
    if r.random() < 0.3:
        limit = r.choice([1, 2, 5])
        large, spacing = TokenBucket(limit, 1, r.choice([10, 20]), name="large"), TokenBucket(limit, 10, 1, name="even")
        return [large, spacing]
    return [random_quota(r, f"quota {number}") for number in range(r.choice([1, 1, 2, 3]))]


def run(seed: int, *, is_debited: bool = False) -> float:
    """A random history of takes, bookings, cancels and settlements; its excess, which is next to nothing.

    ``is_debited`` settles some calls at more than they were charged.
    """
    r = random.Random(seed)
    history = History(random_quotas(r))
    patience, is_busy = r.choice([0.6, 0.6, 0.0, 1.0]), r.random() < 0.5
    filling = r.choice([0.0, 0.03, 0.3])
    drain_us = min([quota.period_us / quota.limit * quota.most for quota in history.quotas])
    costs = r.choice([[1, 1, 1, 2, 0.5, r.uniform(0.1, 5), math.inf], []])
    for _ in range(r.choice([5, 10, 20, 60, 150])):
        if is_busy:
            history.now += float(int(r.choice([0, 0, 0, r.random(), r.random(), 1.1]) * drain_us / 2))
        else:
            history.now += float(int(r.choice([0, 0, 1, 1000, 1e5, 1e6, 1e7, r.uniform(0, 3e6)])))
        if r.random() < 0.5:
            max_wait = 0.0 if r.random() < patience else r.choice([math.inf, math.inf, 5e5])
            history.take(_random_costs(r, history.quotas, costs), max_wait)
        elif history.calls:
            call = r.choice(history.calls) if r.random() < 0.7 else history.calls[-1]
            history.settle(call, _random_actual(r, history.now, call, is_debited))
        if r.random() < filling:
            history.fill()
    history.now = max([history.now, *[use.at for uses in history.uses for use in uses]])
    history.fill()
    return history.excess() / max([1.0, *[quota.most for quota in history.quotas]])


def _random_costs(r: random.Random, quotas: Sequence[Quota], costs: Sequence[float]) -> dict[int, float]:
    """The cost of all quotas or of one of them, one for all or each its own: one of these, or a share of its most."""
    numbers = r.sample(range(len(quotas)), r.choice([1, len(quotas), len(quotas)]))
    if not costs:
        return {number: quotas[number].most / r.choice([1, 2, 3, 4, 8]) for number in numbers}
    most, cost = min([quotas[number].most for number in numbers]), r.choice(costs)
    if r.random() < 0.7:
        return dict.fromkeys(numbers, min(most, cost))
    return {number: min(quotas[number].most, r.choice(costs)) for number in numbers}


def _random_actual(r: random.Random, now: float, call: Call, is_debited: bool) -> dict[int, float]:
    """Nothing, a part, or more of what each bucket was charged; half of the slots that are ahead are cancelled."""
    if any(booked.slot > now for booked in call.booked.values()) and r.random() < 0.5:
        return dict.fromkeys(call.booked, 0.0)
    shares = [0.0, 0.5, r.random(), 1.0, *([1.5, 3.0] if is_debited else [])]
    return {number: r.choice(shares) * booked.cost for number, booked in call.booked.items()}


# Random examples of these are cheap: 400 as usual.
EXAMPLES = 4 * up_to(400).max_examples


@pytest.mark.parametrize("is_debited", [False, True])
def test_no_more_is_used_than_promised(is_debited: bool) -> None:
    """In random histories of takes, bookings, cancels and settlements, of one to three quotas of all kinds."""
    broken = [seed for seed in range(EXAMPLES) if run(seed, is_debited=is_debited) > ROUNDING]
    assert broken == []


def main(first: int, last: int) -> None:
    """Run the histories of these seeds, with and without debits, and print the worst."""
    for is_debited in (False, True):
        found = [(run(seed, is_debited=is_debited), seed) for seed in range(first, last)]
        broken = [seed for worst, seed in found if worst > ROUNDING]
        print(f"{len(found)} histories, debits {is_debited}: broken {broken[:20]} ({len(broken)}), worst {max(found)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
