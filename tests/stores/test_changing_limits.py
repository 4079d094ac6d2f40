"""Limits that change while processes with the old and the new ones run side by side, on each store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
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
