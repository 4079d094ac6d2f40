"""``retry_after`` is exact: a take is refused a microsecond earlier, and allowed then, if nothing else comes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from asgi_ratelimit import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.algorithms import NEVER
from asgi_ratelimit.algorithms.take import State, available, decide, most_at_once, unused
from tests.algorithms.charged import Charged
from tests.support.examples import up_to

NOW = 1_800_000_000_123_457.0
DAY = 86_400.0
EXAMPLES = 8 * up_to(400).max_examples


LIMITS = [1, 3, 7, 37, 97, 1000, 2.5, 1 / 3, 1 / 7, 99.9]
PERIODS = [1.0, 60.0, 3600.0, DAY, 0.1, 0.007]
BURSTS = [None, 1, 2, 7, 97, 1.5, 2.75]
FACTORS = [1.0, 1.0, 1.0, 0.5, 1 / 3, 0.07]


def random_quota(r: random.Random, name: str) -> Quota:
    """A quota with odd numbers."""
    kind, limit, period = r.choice(["bucket", "bucket", "fixed", "rolling"]), r.choice(LIMITS), r.choice(PERIODS)
    if kind == "bucket":
        return TokenBucket(limit, period, r.choice(BURSTS), r.choice(FACTORS), name)
    if kind == "fixed":
        return FixedWindow(max(limit, 1), period, name)
    return RollingWindow(max(limit, 1), period, r.choice([1, 2, 5, 10, 20]), name)


def random_cost(r: random.Random, most: float) -> float:
    """Whole units and fractions, up to the most that can be granted."""
    return min(most, r.choice([1, 1, 2, 3, most, most / 2, most / 3, 0.1, r.uniform(0.001, most)]))


class Buckets:
    """Some buckets, after a random time of takes that go at once and takes that are booked ahead."""

    def __init__(self, r: random.Random, quotas: Sequence[Quota]) -> None:
        self.quotas = quotas
        self.states: list[State] = [unused(quota, NOW) for quota in quotas]
        self.now = NOW
        for _ in range(r.randrange(12)):
            longest = max([quota.period_us / quota.limit for quota in quotas])
            self.now += float(r.choice([0, 1, 333_333, r.randrange(1 + int(longest))]))
            _, after = self.take([random_cost(r, quota.most) for quota in quotas], r.choice([0.0, 0.0, math.inf]))
            self.states = after or self.states

    def take(
        self, costs: Sequence[float], max_wait: float = 0.0, later: float = 0.0
    ) -> tuple[float, list[State] | None]:
        """What a take of these costs is answered, some microseconds later."""
        charges = [Charged(quota, cost) for quota, cost in zip(self.quotas, costs)]
        return decide(charges, self.states, self.now + later, max_wait)

    def require_exact(self, costs: Sequence[float], max_wait: float) -> bool:
        """Require that a take which is refused is allowed at its time, and not before; whether it was refused."""
        wait, after = self.take(costs, max_wait)
        if after is not None:
            return False
        assert wait < NEVER
        assert wait == int(wait)
        retry = wait - max_wait
        assert self.take(costs, max_wait, retry - 1)[1] is None
        at_retry, after = self.take(costs, max_wait, retry)
        assert after is not None
        assert at_retry <= max_wait
        assert self.take(costs, math.inf)[0] == wait
        return True


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("max_wait", [0.0, 1.0, 250_000.0])
def test_any_refusal_is_exact(number: int, max_wait: float) -> None:
    """For all kinds of quotas, one alone and several together, in both modes; a longer wait books at the same time."""
    refused = 0
    for seed in range(EXAMPLES // 4):
        r = random.Random(seed)
        buckets = Buckets(r, [random_quota(r, f"quota {index}") for index in range(number)])
        costs = [random_cost(r, quota.most) for quota in buckets.quotas]
        refused += buckets.require_exact(costs, max_wait)
    assert refused > EXAMPLES // 20


@pytest.mark.parametrize("limit", [1, 3, 7, 37, 97])
@pytest.mark.parametrize("period", [1.0, 60.0, DAY])
@pytest.mark.parametrize("burst", [1, 3, 97])
def test_each_unit_comes_back_at_its_microsecond(limit: int, period: float, burst: int) -> None:
    """Of a bucket that is used up: each after ``period / limit`` more, to the microsecond."""
    quota = TokenBucket(limit, period, burst)
    _, after = decide([Charged(quota, burst)], [unused(quota, NOW)], NOW, 0.0)
    assert after is not None
    for units in range(1, burst + 1):
        wait, refused = decide([Charged(quota, units)], after, NOW, 0.0)
        exact = units * Fraction(period) * 10**6 / limit
        assert math.floor(exact) <= wait <= math.ceil(exact)
        assert refused is None
        assert decide([Charged(quota, units)], after, NOW + wait - 1, 0.0)[1] is None
        assert decide([Charged(quota, units)], after, NOW + wait, 0.0)[1] is not None


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_cost_above_the_burst_goes_from_an_empty_bucket(factor: float) -> None:
    """If its caller may wait: exactly when the bucket is empty, and the next one waits until it has run off."""
    quota = TokenBucket(10, burst=3, burst_allowance_factor=factor)
    _, used = decide([Charged(quota, 3)], [unused(quota, NOW)], NOW, 0.0)
    assert used is not None
    empty = 300_000.0 if factor == 1.0 else 100_000.0 + 2 * 200_000.0  # the last two units at half the rate
    assert decide([Charged(quota, 7)], used, NOW, empty - 1) == (empty, None)
    wait, after = decide([Charged(quota, 7)], used, NOW, empty)
    assert wait == empty
    assert after is not None
    assert decide([Charged(quota, 1)], after, NOW, 0.0)[0] == empty + 500_000.0  # until 7 have become 2


@pytest.mark.parametrize("seed", range(EXAMPLES // 8))
def test_best_effort_grants_what_is_there(seed: int) -> None:
    """The most whole units that all can give: they are allowed, and one more is not."""
    r = random.Random(seed)
    buckets = Buckets(r, [random_quota(r, f"quota {index}") for index in range(r.choice([1, 1, 2, 3]))])
    cost = float(r.choice([1, 2, 5, 50, 1000]))
    granted = most_at_once([Charged(quota, cost) for quota in buckets.quotas], buckets.states, buckets.now)
    assert 1 <= granted <= cost
    units = [available(quota, state, buckets.now)[0] for quota, state in zip(buckets.quotas, buckets.states)]
    is_allowed = buckets.take([granted] * len(buckets.quotas))[1] is not None
    assert is_allowed == (min(units) >= 1)
    if is_allowed and granted < cost:
        assert buckets.take([granted + 1] * len(buckets.quotas))[1] is None


@pytest.mark.parametrize("seed", range(EXAMPLES // 8))
def test_a_charge_of_nothing_waits_for_room(seed: int) -> None:
    """Its take goes as soon as no bucket is booked ahead, not a microsecond earlier, and leaves its state as it is."""
    r = random.Random(seed)
    buckets = Buckets(r, [random_quota(r, f"quota {index}") for index in range(r.choice([1, 2]))])
    costs = [0.0] * len(buckets.quotas)
    if not buckets.require_exact(costs, 0.0):
        assert buckets.take(costs) == (0.0, buckets.states)
