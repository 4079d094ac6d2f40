"""Limits that change while processes with the old and the new ones run side by side, on each store."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import pytest
import redis

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import FACTOR
from tests.support.histories import Ledger
from tests.support.other_process import OtherProcess

pytestmark = pytest.mark.anyio

Change: TypeAlias = tuple[Quota, Quota]


def changes(period: float) -> dict[str, Change]:
    """What may change of a quota of 10 in that period, its name aside: what it was, and what it is."""
    bucket = TokenBucket(10, period, burst=10, name="quota")
    fixed = FixedWindow(10, period, name="quota")
    rolling = RollingWindow(10, period, 10, name="quota")
    return {
        "a bucket raised": (bucket, TokenBucket(60, period, burst=10, name="quota")),
        "a bucket lowered": (bucket, TokenBucket(2, period, burst=10, name="quota")),
        "a larger burst": (bucket, TokenBucket(10, period, burst=30, name="quota")),
        "a smaller burst": (bucket, TokenBucket(10, period, burst=2, name="quota")),
        "another period": (bucket, TokenBucket(3, period / 5, burst=3, name="quota")),
        "a slower burst": (bucket, TokenBucket(10, period, burst=20, burst_allowance_factor=0.5, name="quota")),
        "a fixed window raised": (fixed, FixedWindow(40, period, name="quota")),
        "a fixed window lowered": (fixed, FixedWindow(4, period, name="quota")),
        "a fixed window of another period": (fixed, FixedWindow(4, period / 2, name="quota")),
        "a rolling window raised": (rolling, RollingWindow(40, period, 10, name="quota")),
        "a rolling window lowered": (rolling, RollingWindow(4, period, 10, name="quota")),
        "other parts": (rolling, RollingWindow(10, period, 5, name="quota")),
        "a bucket for a fixed window": (fixed, bucket),
        "a rolling window for a bucket": (bucket, rolling),
        "a fixed window for a rolling one": (rolling, fixed),
    }


CHANGES = changes(10.0)
EACH = pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
SHORT = changes(0.2)
GROUPS = [list(SHORT)[:6], list(SHORT)[6:12], list(SHORT)[12:]]


@dataclass
class Version:
    """A process with one version of a quota: its limiter, what it admitted, and what it has booked and may cancel."""

    limiter: Limiter
    ledger: Ledger
    booked: list[Decision] = field(default_factory=list)

    def admitted(self, decision: Decision) -> None:
        """Note a decision at its slot, if it was allowed."""
        if decision.allowed:
            self.ledger.admit(round(decision.now_us) + round(decision.delay * 1e6), 1)


def versions(store: Store, *quotas: Quota) -> list[Version]:
    """A process for each version, on one bucket."""
    return [Version(Limiter(quota, store=OtherProcess(store)), Ledger(quota)) for quota in quotas]


@EACH
@pytest.mark.parametrize("max_delay", [0.0, 15.0], ids=["refusing", "booking ahead"])
async def test_half_a_minute_under_load_admits_no_more_than_both_quotas(
    store: Store, clock: SteppedClock, old: Quota, new: Quota, max_delay: float
) -> None:
    """In any interval, no version admits more than its own quota, whatever the other one does."""
    chance, both = random.Random(11), versions(store, old, new)
    end = clock.now + 30
    while clock.now < end:
        version = chance.choice(both)
        version.admitted(await version.limiter.pace("key", max_delay=max_delay))
        clock.advance(chance.randint(1, 200_000) / 1e6)
    for version in both:
        version.ledger.require_ceiling()
    assert sum(entry.units for version in both for entry in version.ledger.entries) >= 25  # old alone admits as many


@EACH
@pytest.mark.parametrize("booked", [0, 1, 10, 25, 100])
async def test_who_has_booked_nothing_waits_no_longer_than_for_an_emptied_bucket(
    store: Store, old: Quota, new: Quota, booked: int
) -> None:
    """Whatever the other version has booked ahead; the same after a change that is taken back."""
    for before, after in [(old, new), (new, old)]:
        busy, late = versions(store, before, after)
        await busy.limiter.reset("key")
        await late.limiter.reset("key")
        await late.limiter.reset("emptied")
        for _ in range(booked):
            await busy.limiter.pace("key")
        await late.limiter.rate_limit("emptied", after.most)
        for cost in (1, after.most):
            refused, emptied = await late.limiter.peek("key", cost), await late.limiter.peek("emptied", cost)
            assert refused.retry_after <= emptied.retry_after


@EACH
async def test_booked_slots_keep_their_times(store: Store, clock: SteppedClock, old: Quota, new: Quota) -> None:
    """A new version books its own slots in between; the next one of the old version comes after its last one."""
    before, after = versions(store, old, new)
    slots = [(await before.limiter.pace("key")).ready_at for _ in range(25)]
    ticket = str(await before.limiter.reserve("key"))
    clock.advance(0.05)
    for _ in range(3):
        await after.limiter.pace("key")
    assert (await before.limiter.pace("key")).ready_at >= max(slots)
    redeemed = await after.limiter.redeem(ticket)
    assert redeemed.allowed
    assert redeemed.ready_at >= max(slots)


@EACH
@pytest.mark.parametrize("seed", range(max(1, round(8 * FACTOR))))
async def test_both_stores_decide_alike(redis_url: str, clock: SteppedClock, old: Quota, new: Quota, seed: int) -> None:
    """Takes, bookings, settlements up and down, in turns and at any time."""
    remote = RedisStore(redis_url, clock=clock, timeout=30, on_error="deny")
    async with Limiter(old, store=remote):  # closes the store
        chance, local = random.Random(seed), MemoryStore(clock=clock)
        both = [[Limiter(quota, store=OtherProcess(store)) for store in (local, remote)] for quota in (old, new)]
        booked: list[list[Decision]] = []
        for _ in range(150):
            clock.advance(chance.choice([-0.3, 0, 0.000001, 0.1, 0.1, 2, 15]))
            index, cost = chance.randrange(2), chance.choice([0.5, 1, 2])
            max_delay = chance.choice([0.0, 15.0, None])
            decisions = [await limiter.pace("key", cost, max_delay=max_delay) for limiter in both[index]]
            assert decisions[0] == decisions[1]
            if decisions[0].allowed:
                booked.append(decisions)
            if booked and chance.random() < 0.3:
                actual = chance.choice([0, 0.25, 4])
                for limiter, decision in zip(both[0], booked.pop(chance.randrange(len(booked)))):
                    await limiter.settle(decision, actual)


@pytest.mark.parametrize("text", ["1/minute fixed", "1/minute rolling"])
async def test_a_raised_window_frees_at_once(store: Store, text: str) -> None:
    """Ten callers have booked the next ten minutes; under 100 a minute, nobody waits for them."""
    old = Limiter(text, store=store)
    for _ in range(10):
        await old.pace("key")
    new = Limiter(text.replace("1/", "100/"), store=OtherProcess(store))
    assert (await new.rate_limit("key", 99)).allowed


async def test_a_lowered_bucket_locks_nobody_out(store: Store, clock: SteppedClock) -> None:
    """After sixteen slots that were booked at one a second, a unit fits when ``retry_after`` says so, and soon."""
    old = Limiter(TokenBucket(1, burst=1, name="quota"), store=store)
    for _ in range(17):
        await old.pace("key")
    new = Limiter(TokenBucket(0.5, burst=1, name="quota"), store=OtherProcess(store))
    refused = await new.rate_limit("key")
    assert refused.retry_after == 2
    clock.advance(refused.retry_after - 0.000001)
    assert not (await new.rate_limit("key")).allowed
    clock.advance(0.000001)
    assert (await new.rate_limit("key")).allowed


@EACH
async def test_versions_never_wipe_each_other(store: Store, old: Quota, new: Quota) -> None:
    """In four hundred takes in turns, at one moment, each version admits what its quota has, and no more."""
    both = versions(store, old, new)
    for turn in range(400):
        both[turn % 2].admitted(await both[turn % 2].limiter.rate_limit("key"))
    for version in both:
        version.ledger.require_ceiling()


# Without a clock of their own: the stores' own time, and real times to live


@pytest.fixture(params=["memory", "redis"])
async def live_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Each kind of store in turn, empty, in real time."""
    made: Store = MemoryStore()
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis_url"), timeout=30, on_error="deny")
    yield made
    await made.aclose()


@pytest.mark.parametrize("names", GROUPS, ids=["buckets", "windows", "other kinds"])
async def test_in_real_time_versions_admit_no_more_than_both_quotas(live_store: Store, names: list[str]) -> None:
    """For more than four periods, each version of each change is offered more than it admits."""
    of_change = {name: versions(live_store, *SHORT[name]) for name in names}
    end = time.monotonic() + 0.9

    async def take(name: str, version: Version) -> None:
        version.admitted(await version.limiter.rate_limit(name))

    while time.monotonic() < end or any(units(both) < 30 for both in of_change.values()):
        await asyncio.gather(*[take(name, version) for name, both in of_change.items() for version in both])
    for version in chain(*of_change.values()):
        version.ledger.require_ceiling()


def units(both: list[Version]) -> float:
    """What both versions have admitted."""
    return sum(entry.units for version in both for entry in version.ledger.entries)


@pytest.mark.parametrize(("old", "new"), SHORT.values(), ids=SHORT)
async def test_no_key_outlives_both_versions(redis_url: str, old: Quota, new: Quota) -> None:
    """A second later, both are full again; -2 is the life of a key that is gone already."""
    async with Limiter(old, store=RedisStore(redis_url, timeout=30, on_error="deny")) as before:
        for version in versions(before.store, old, new):
            while (await version.limiter.rate_limit("key")).allowed:
                pass
    with redis.Redis.from_url(redis_url) as client:
        lives = [client.pttl(key) for key in client.keys("rl:default:*")]
    assert all(life == -2 or 0 <= life <= 1000 for life in lives)


SHARED = {name: change for name, change in CHANGES.items() if len({quota.kind for quota in change}) == 1}


@pytest.mark.parametrize(("old", "new"), SHARED.values(), ids=SHARED)
async def test_a_value_lives_as_long_as_either_version_needs_it(redis_url: str, old: Quota, new: Quota) -> None:
    """What the old version has booked ahead outlives a take of the new one."""
    async with Limiter(old, store=RedisStore(redis_url, timeout=30, on_error="deny")) as before:
        for _ in range(65):
            await before.pace("key")
        with redis.Redis.from_url(redis_url) as client:
            (key,) = client.keys("rl:default:*")
            needed_ms = client.pttl(key)
            await Limiter(new, store=OtherProcess(before.store)).pace("key")
            assert client.pttl(key) >= needed_ms - 10_000  # real time goes on
