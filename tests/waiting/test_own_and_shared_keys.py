"""Own and shared keys: one busy key with a long queue does not hold up the others, and no slot stays unused."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit import Charge, Decision, Limiter, MemoryStore, Overrides, RedisStore, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import run_async
from asgi_ratelimit.waiting.waiter import PaceTimeout, SlotWaiter
from tests.support.histories import Ledger
from tests.support.strategies import quotas

INF = float("inf")
ALL = TokenBucket(50, burst=1, name="all")
OWN: dict[str, Quota] = {
    "even": TokenBucket(10, 10, burst=1, name="guild"),
    "burst": TokenBucket(10, 10, burst=10, name="guild"),
    "fixed": FixedWindow(10, 10, name="guild"),
    "rolling": RollingWindow(10, 10, buckets=100, name="guild"),
}


class Guilds:
    """Guilds whose jobs go at ``own`` for each and at ``shared`` for all, and when each of their jobs went."""

    def __init__(self, own: Quota, shared: Quota = ALL) -> None:
        self.clock = SteppedClock(0)
        self.store = MemoryStore(clock=self.clock)
        self.waiter = SlotWaiter(self.store)
        self.own, self.shared = own, shared
        self.went: dict[str, list[float]] = {}

    def take(self, guild: str, max_wait: float = INF) -> Take:
        """One job of a guild."""
        return Take((Charge(self.own, guild), Charge(self.shared, "all")), max_wait)

    async def job(self, guild: str, max_wait: float = INF) -> Decision:
        """Wait for the slot of one job."""
        decision = await run_async(self.waiter.wait(self.take(guild, max_wait)))
        self.went.setdefault(guild, []).append(self.clock.now)
        return decision

    def run(self, jobs: dict[str, int], seconds: float) -> Counter[str]:
        """How many jobs of each guild go in that time, if all of them are there at the start."""

        async def main() -> None:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*[self.job(guild) for guild, count in jobs.items() for _ in range(count)])

        with contextlib.suppress(TimeoutError):
            self.clock.run(main())
        return Counter({guild: len(times) for guild, times in self.went.items()})


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_a_guild_with_many_jobs_takes_nothing_from_the_others(own: Quota) -> None:
    """The other 49 get as much as without it, and the shared quota is used up; whoever comes first has two more."""
    others = {f"guild {number}": 40 for number in range(49)}
    without = Guilds(own).run(others, 30.25)  # three times the units of each window, and no more
    with_it = Guilds(own).run({"busy": 400, **others}, 30.25)
    for guild in others:
        assert abs(with_it[guild] - without[guild]) <= 2
    assert with_it.total() >= 0.98 * 50 * 30
    assert with_it["busy"] >= 20


def test_max_wait_covers_the_own_key_and_the_shared_one() -> None:
    """It raises at once if the own key cannot allow the job in time, after those in front of it."""
    guilds = Guilds(OWN["even"], TokenBucket(1, burst=1, name="all"))

    async def main() -> None:
        jobs = [asyncio.ensure_future(guilds.job("busy")) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(PaceTimeout, match=r"'busy' is 4 s away, max_delay is 3.5 s"):
            await guilds.job("busy", 3.5)
        assert guilds.clock.now == 0.0
        other = asyncio.ensure_future(guilds.job("other", 1.5))
        await asyncio.sleep(0)
        with pytest.raises(PaceTimeout):
            await guilds.job("third", 1.5)
        assert guilds.clock.now == 0.0
        await asyncio.gather(other, *jobs)

    guilds.clock.run(main())
    assert guilds.went == {"busy": [0.0, 2.0, 3.0, 4.0], "other": [1.0]}


@pytest.mark.anyio
@pytest.mark.parametrize(("on_error", "refused"), [("local", 2), ("allow", 0), ("deny", 3)])
async def test_an_outage_decides_about_both(on_error: Any, refused: int) -> None:
    """Also for callers that may not wait for longer than some time, although nothing can be looked up."""
    limiter = Limiter([OWN["even"], ALL], store=RedisStore("redis://127.0.0.1:1/0", on_error=on_error))
    key = {"guild": "a guild", "all": "all"}
    for _ in range(1 if on_error == "local" else 2):  # the second time, the outage is known
        calls = [limiter.acquire(key, max_delay=0.5) for _ in range(3)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, PaceTimeout) for answer in answers) == refused
    if on_error == "allow":  # whoever passes keeps no distance to the others either
        await asyncio.wait_for(asyncio.gather(*[limiter.acquire(key) for _ in range(100)]), 20)
    await limiter.aclose()


def test_max_wait_of_a_caller_behind_cheaper_ones() -> None:
    """What they cost counts for them, and not what it costs itself."""
    clock = SteppedClock(0)
    limiter = Limiter([TokenBucket(10, 10, name="guild"), ALL], store=MemoryStore(clock=clock))
    keys = {"guild": "guild", "all": "everybody"}

    async def main() -> None:
        others = [asyncio.ensure_future(limiter.acquire(keys)) for _ in range(20)]
        await asyncio.sleep(0)
        await limiter.acquire(keys, 5, max_delay=16)
        await asyncio.gather(*others)

    clock.run(main())
    assert clock.now == pytest.approx(15, abs=0.1)


@settings(max_examples=50)
@given(own=quotas("own"), shared=quotas("shared"), data=st.data())
def test_both_promises_hold(own: Quota, shared: Quota, data: st.DataObject) -> None:
    """Callers come and go: neither the own quota of any key nor the shared one is ever exceeded."""
    guilds = Guilds(own, shared)
    ledgers = {key: Ledger(own) for key in "ab"} | {"all": Ledger(shared)}
    gaps = st.sampled_from([0.0, 0.001, 0.02]) | st.floats(0, float(2 * own.period / own.limit))
    plan = data.draw(st.lists(st.tuples(st.sampled_from("ab"), gaps, st.none() | gaps), min_size=1, max_size=20))

    async def call(key: str, max_seconds: float | None) -> None:
        async with asyncio.timeout(max_seconds):
            await guilds.job(key)
        for name in (key, "all"):
            ledgers[name].admit(guilds.clock.now_us(), 1)

    async def main() -> Sequence[object]:
        calls = []
        for key, gap, max_seconds in plan:
            await asyncio.sleep(gap)
            calls.append(asyncio.ensure_future(call(key, max_seconds)))
        return await asyncio.gather(*calls, return_exceptions=True)

    ended = guilds.clock.run(main())
    for ledger in ledgers.values():
        ledger.require_ceiling()
    assert all(error is None or isinstance(error, TimeoutError) for error in ended)


class WithoutBookingAhead(MemoryStore):
    """A store that never books ahead, as a cluster does for keys on several nodes."""

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        return await super().take([replace(take, max_wait=0.0) for take in takes])


def test_jobs_over_such_a_store_follow_a_limit_that_changes(clock: SteppedClock) -> None:
    """They have booked nothing: from then on, no more of them go than the new limit admits."""
    store = WithoutBookingAhead(clock=clock)
    limiter = Limiter((OWN["even"], ALL), store=store, name="api")
    went: list[float] = []

    async def job(guild: str) -> None:
        await limiter.acquire({"guild": guild, "all": ""})
        went.append(clock.now)

    async def main() -> float:
        jobs = [asyncio.create_task(job(f"guild {number}")) for number in range(100)]
        await asyncio.sleep(1)
        await Overrides(store).set("api", (OWN["even"], TokenBucket(1, burst=1, name="all")))
        changed = clock.now
        await asyncio.sleep(20)
        for each in jobs:
            each.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        return changed

    changed = clock.run(main())
    assert 18 <= sum(time > changed for time in went) <= 22
