"""Slots that are cancelled in a token bucket, with a ``burst_allowance_factor`` below 1 and without: others take them.

Where all but k slots are cancelled, a caller of a cost c up to the burst finds its place before or behind those k. In
front of each of them, and behind the last, less than c is free, or it would take that; and a slot of more than one unit
has waited for up to burst - 1 units at the slow rate. So it waits for the time of

    units of the k + (k + 2) * c + (k + 1) * (burst - 1) * (1 / factor - 1)

units at most, however many others have come and gone. Behind those k alone it waits for their units + c - burst.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
import redis

from asgi_ratelimit.algorithms import foresee
from asgi_ratelimit.decision import Charge, Settlement, Take
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores.redis.script_actions import charges_of
from tests.support.bucket_histories import Booked, Buckets, OtherStore, States
from tests.support.direct_script import DirectScript
from tests.support.examples import up_to
from tests.support.histories import without_generation
from tests.support.redis_server import RedisServer

FACTORS = pytest.mark.parametrize("factor", [0.5, 0.9, 1.0])
SEEDS = up_to(80).max_examples


def random_bucket(chance: random.Random, factor: float) -> TokenBucket:
    """Rates at which a slot is a whole number of microseconds, and others."""
    return TokenBucket(chance.choice([60, 50, 7, 1 / 3]), 1.0, chance.choice([2, 3, 5.5]), factor)


def ahead(buckets: Buckets) -> list[Booked]:
    """What is booked for later, and not cancelled."""
    return [booked for booked in buckets.open() if booked.slot_us > buckets.now]


def after_a_crowd(chance: random.Random, quota: TokenBucket, other_store: OtherStore | None = None) -> Buckets:
    """Slots are booked and most of them cancelled, again and again; a dozen at most are ever booked ahead."""
    buckets = Buckets([quota], other_store)
    costs = chance.choice([[1.0], [1.0, 2.0], [0.5, 1.0, 2.0, quota.burst]])
    for _ in range(40):
        while len(ahead(buckets)) < 12:
            buckets.take(chance.choice(costs), math.inf)
        for booked in chance.sample(ahead(buckets), chance.randint(1, 10)):
            buckets.settle(booked, 0.0)
        buckets.now += round(chance.choice([0, 0.3, 1, 2.5]) * 1e6 / quota.limit)
    return buckets


@FACTORS
def test_never_more_than_promised_in_any_interval(factor: float) -> None:
    """However many slots are cancelled, and others take them."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        after_a_crowd(chance, random_bucket(chance, factor)).require_promise()


@FACTORS
def test_those_who_stay_wait_for_each_other_only(factor: float) -> None:
    """All but a few cancel: a new caller waits for these, and for nobody who has gone."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        quota = random_bucket(chance, factor)
        buckets = after_a_crowd(chance, quota)
        for booked in chance.sample(ahead(buckets), max(len(ahead(buckets)) - chance.randint(0, 3), 0)):
            buckets.settle(booked, 0.0)
        left = ahead(buckets)
        for cost in (1.0, 2.0, quota.burst):
            decision = foresee(Take((Charge(quota, "key", cost),), math.inf), buckets.states, buckets.now)
            slow = (len(left) + 1) * (quota.burst - 1) * (1 / factor - 1)
            most = sum(booked.actual for booked in left) + (len(left) + 2) * cost + slow
            assert decision.delay * quota.limit <= most + 1e-3, (seed, quota, cost, len(left))


@FACTORS
def test_callers_of_one_unit_take_the_first_slots_that_are_free(factor: float) -> None:
    """Of a dozen who wait, most are replaced forty times: nobody waits for more than the eleven others."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        quota = TokenBucket(60, 1.0, 3, factor)
        buckets, booked = Buckets([quota]), []
        for _ in range(40):
            booked = ahead(buckets)
            while len(booked) < 12:
                assert buckets.take(1.0, math.inf).delay * 60 <= 12.01
                booked = ahead(buckets)
            for each in chance.sample(booked, 9):
                buckets.settle(each, 0.0)
            buckets.now += chance.choice([0, 1, 5_000, 16_667, 20_000])


@pytest.fixture(scope="module")
def script(redis_server: RedisServer) -> Iterator[DirectScript]:
    """The script on a Redis of its own."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client)


@FACTORS
def test_redis_is_left_with_the_same_states(script: DirectScript, factor: float) -> None:
    """To the bit, after every booking and every cancellation, but for generations that are given out."""

    def require_same_states(action: Take | Settlement, before: States, after: States, now: float) -> None:
        (charge,) = charges_of(action)
        script.client.flushdb()
        if before[0] is not None:
            script.put(charge, before[0])
        script.call([action], round(now))
        assert without_generation(script.state(charge)) == without_generation(after[0])

    for seed in range(SEEDS // 4):
        chance = random.Random(seed)
        after_a_crowd(chance, random_bucket(chance, factor), require_same_states)
