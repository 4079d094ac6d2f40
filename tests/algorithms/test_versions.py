"""Versions of a token bucket: limits that change, while processes with the old and the new ones share one value."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import decide, pack, reset_us, unpack
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import TokenBucket
from tests.support.direct_script import DirectScript
from tests.support.examples import up_to
from tests.support.redis_server import RedisServer
from tests.support.version_histories import TwoVersions, emptied, random_habits, random_step, random_versions

SOME = up_to(200).max_examples
NOW = 1_800_000_000_000_000.0
SECOND = 1_000_000.0


@dataclass
class Shared:
    """The value of one bucket, and the time."""

    value: bytes | None = None
    now: float = NOW

    def take(self, quota: TokenBucket, cost: float = 1, max_wait: float = 0.0) -> Decision:
        """A take by a process with this version of the quota."""
        take = Take((Charge(quota, "key", cost),), max_wait, may_settle=True)
        decision, (after,) = decide(take, [unpack(quota, self.value)], self.now, 7)
        if after is not None:
            self.value = pack(quota, after)
        return decision

    def take_all(self, quota: TokenBucket) -> int:
        """Single units until one is refused; how many there were."""
        taken = 0
        while self.take(quota).allowed:
            taken += 1
        return taken


OLD = TokenBucket(60, 60, burst=10)
VERSIONS = {
    "raised": TokenBucket(600, 60, burst=10),
    "lowered": TokenBucket(6, 60, burst=10),
    "larger burst": TokenBucket(60, 60, burst=50),
    "smaller burst": TokenBucket(60, 60, burst=2),
    "other period": TokenBucket(5, 1, burst=5),
}
EACH = pytest.mark.parametrize("new", VERSIONS.values(), ids=VERSIONS)


def most(quota: TokenBucket, seconds: float) -> float:
    """The most units that a quota admits in any so many seconds."""
    return quota.burst + seconds * quota.limit / quota.period


@EACH
def test_what_was_used_stays_used(new: TokenBucket) -> None:
    """A deployment with other numbers grants no second burst."""
    shared = Shared()
    assert shared.take_all(OLD) == 10
    assert shared.take_all(new) == max(new.burst - 10, 0)


@EACH
@pytest.mark.parametrize("booked", [1, 10, 100])
def test_nobody_waits_longer_than_for_an_emptied_bucket(new: TokenBucket, booked: int) -> None:
    """Whatever is booked ahead under the old limits: who has booked nothing is served as after a full burst."""
    shared, emptied = Shared(), Shared()
    for _ in range(booked):
        shared.take(OLD, max_wait=math.inf)
    emptied.take(new, new.burst)
    for cost in (1, new.burst):
        assert shared.take(new, cost).retry_after <= emptied.take(new, cost).retry_after


@EACH
@pytest.mark.parametrize("seed", range(5))
def test_two_versions_side_by_side_admit_what_the_larger_one_admits(new: TokenBucket, seed: int) -> None:
    """For a minute under load, in turns; and beside one that is idle from then on, the other has its own rate."""
    chance, shared = random.Random(seed), Shared()
    taken = {OLD: 0, new: 0}
    while shared.now < NOW + 60 * SECOND:
        quota = chance.choice([OLD, new])
        taken[quota] += shared.take(quota).allowed
        shared.now += chance.randint(1, 40_000)
    larger = max(most(OLD, 60), most(new, 60))
    assert larger - max(OLD.burst, new.burst) - 11 <= sum(taken.values()) <= larger + 60 * OLD.limit / 60
    for quota in (OLD, new):
        alone = 0
        for _ in range(1000):
            shared.now += 60_000
            alone += shared.take(quota).allowed
        assert most(quota, 60) - quota.burst - 1 <= alone <= most(quota, 60)


QUOTAS = st.builds(
    TokenBucket, st.sampled_from([1, 2.5, 10]), st.sampled_from([1.0, 3.0]), st.sampled_from([1, 3, 8.5])
)
TURNS = st.tuples(st.booleans(), st.sampled_from([0.5, 1, 2]), st.sampled_from([0, 1, 1_000, 400_000, 3_000_000]))


@given(old=QUOTAS, new=QUOTAS, turns=st.lists(TURNS, max_size=60))
@up_to(300)
def test_no_version_ever_admits_more_than_its_quota(
    old: TokenBucket, new: TokenBucket, turns: list[tuple[bool, float, int]]
) -> None:
    """In any interval, whatever the other one does in between."""
    shared = Shared()
    admitted: dict[TokenBucket, list[tuple[float, float]]] = {old: [], new: []}
    for is_old, cost, passed_us in turns:
        quota = old if is_old else new
        if shared.take(quota, cost).allowed:
            admitted[quota].append((shared.now, cost))
        shared.now += passed_us
    for quota, entries in admitted.items():
        for at, (first, _) in enumerate(entries):
            for to, (last, _) in enumerate(entries[at:], at):
                units = sum(cost for _, cost in entries[at : to + 1])
                assert units <= most(quota, (last - first) / SECOND) + 1e-6


@pytest.fixture(scope="module")
def script(redis_server: RedisServer) -> Iterator[DirectScript]:
    """The script on a Redis of its own."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client)


def require_both_quotas(seed: int, script: DirectScript | None = None) -> None:
    """Takes, bookings, settlements up and down, and cancellations of two versions, as the seed says."""
    chance = random.Random(seed)
    versions = TwoVersions(random_versions(chance), script)
    habits = random_habits(chance)
    for _ in range(chance.randint(5, 60)):
        random_step(chance, versions, habits)
    versions.require_each_promise()
    versions.require_both_quotas_together()


def test_in_no_interval_more_than_both_quotas_together(script: DirectScript) -> None:
    """Of quotas of any kind, in actual units, in memory and on Redis, whose values are equal to the bit."""
    for seed in range(SOME):
        script.client.flushdb()
        require_both_quotas(seed, script)


def require_waits_as_for_an_emptied_bucket(seed: int) -> None:
    """One version books nothing ahead, and nothing is debited under it; the other does anything.

    What a window was debited is paid back before, under either version.
    """
    chance = random.Random(seed)
    versions = TwoVersions(random_versions(chance))
    habits, late = random_habits(chance, (True, False)), versions.quotas[1]
    for _ in range(chance.randint(5, 40) if versions.quotas[0].stamp != late.stamp else 0):
        random_step(chance, versions, habits)
        for cost in {cost for cost in (0.1, 0.5, late.most / 2, late.most) if cost <= late.most}:
            waited, most = versions.retry_after(1, cost), emptied(late, versions.now).retry_after(1, cost)
            assert waited <= most + versions.payback(1) + 1e-7, (versions.quotas, cost)


def test_who_has_booked_nothing_waits_no_longer_than_for_an_emptied_bucket() -> None:
    """Whatever the other version takes, books, gives back or is debited."""
    for seed in range(SOME):
        require_waits_as_for_an_emptied_bucket(seed)


@pytest.mark.long
def test_both_in_ten_thousand_histories() -> None:
    """In memory."""
    for seed in range(1_000_000, 1_010_000):
        require_both_quotas(seed)
        require_waits_as_for_an_emptied_bucket(seed)


def test_the_value_means_something_as_long_as_either_version_does() -> None:
    """The time to live is the longer one; after that the other version is no longer carried along."""
    shared, slow, quick = Shared(), TokenBucket(1, 60, burst=10), TokenBucket(600, 60, burst=10)
    for _ in range(10):
        shared.take(slow)
    shared.now += SECOND
    shared.take(quick, 0.5)
    state = unpack(quick, shared.value)
    assert state is not None
    assert reset_us(quick, state, shared.now) == 599 * SECOND
    shared.now += 598 * SECOND
    assert shared.take(slow, 9).allowed
    shared.now += 600 * SECOND
    shared.take(quick)
    state = unpack(quick, shared.value)
    assert state is not None
    assert state[5] == b""


def test_a_third_version_replaces_the_oldest() -> None:
    """A value holds two versions at most, however often limits change."""
    shared = Shared()
    for limit in range(1, 30):
        shared.take(TokenBucket(limit, 3600, burst=50))
    assert shared.value is not None
    assert len(shared.value) < 400
