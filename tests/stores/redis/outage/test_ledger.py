"""The outage ledger: Redis is charged with what is still in use when it is back, and with no less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, FixedWindow, MemoryStore, Quota, RollingWindow, Take, TokenBucket
from asgi_ratelimit.background import run_in_place
from asgi_ratelimit.stores.redis.outage import Outage
from asgi_ratelimit.testing import SteppedClock
from tests.support.examples import up_to

KINDS: list[Callable[..., Quota]] = [TokenBucket, FixedWindow, RollingWindow]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=["bucket", "fixed", "rolling"])


class Fleet:
    """Processes that share a store, each with an outage of its own; the store stands for Redis."""

    def __init__(self, replicas: int = 1) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(clock=self.clock)
        self.outages = [Outage("local", replicas, self.clock, 600.0) for _ in range(replicas)]
        self.granted: list[tuple[float, float, float]] = []
        self.out = 0.0

    @property
    def outage(self) -> Outage:
        return self.outages[0]

    def take(self, charge: Charge) -> float:
        """Take from the store; returns the units that it granted."""
        (decision,) = self.store.take((Take((charge,)),))
        return self._noted(decision.granted)

    def take_without(self, charge: Charge, process: int = 0) -> float:
        """Take in an outage; returns the units that were granted."""
        return self._noted(self.outages[process].decide(Take((charge,))).granted)

    def repay(self, *, is_answered: bool = True) -> None:
        """Charge the store with all ledgers; its answers may get lost."""
        for each in self.outages:
            while entries := each.ledger.some(60, lambda bucket: True):
                run_in_place(self.store.settle([replace(entry) for entry in entries]))
                if not is_answered:
                    break
                for entry in entries:
                    each.ledger.done(entry)

    def left(self, charge: Charge) -> int:
        return run_in_place(self.store.peek(Take((charge,)))).remaining

    def require_promise(self, burst: float, rate: float) -> None:
        """In no interval more than the burst, and what comes back in it, twice while the store is out."""
        for at, (began, out_before, _) in enumerate(self.granted):
            units = 0.0
            for ended, out, granted in self.granted[at:]:
                units += granted
                assert units <= burst + (ended - began + out - out_before) * rate + 1e-6

    def _noted(self, granted: float) -> float:
        self.granted.append((self.clock.now, self.out, granted))
        return granted


@EACH_KIND
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_sum_that_could_not_be_charged_goes_down(kind: Callable[..., Quota], is_answered: bool) -> None:
    """What was taken after it was sent is charged too; one that was charged, and whose answer is lost, is not."""
    fleet, charge = Fleet(), Charge(kind(10, 6.0), "key")
    fleet.take_without(replace(charge, cost=6))
    fleet.outage.ledger.some(60, lambda bucket: True)  # sent, and lost on the way
    if not is_answered:
        fleet.repay(is_answered=False)
    fleet.take_without(replace(charge, cost=4))
    fleet.clock.advance(30.0)
    fleet.take_without(replace(charge, cost=3))
    fleet.repay()
    assert fleet.left(charge) == 7


@EACH_KIND
def test_a_bucket_that_this_process_has_forgotten(kind: Callable[..., Quota]) -> None:
    """All that was taken of it is charged."""
    fleet, charge = Fleet(), Charge(kind(10, 3600.0), "key", 4)
    fleet.take_without(charge)
    run_in_place(fleet.outage.local.reset([charge]))
    fleet.repay()
    assert fleet.left(charge) == 6


@pytest.mark.parametrize("quota", [TokenBucket(8, 60.0), FixedWindow(8, 60.0)], ids=["bucket", "fixed"])
def test_a_large_take_of_a_small_share(quota: Quota) -> None:
    """It is granted as a whole, small ones wait until it is back below the share, and all of it is charged."""
    fleet = Fleet(replicas=4)
    assert fleet.take_without(Charge(quota, "key", 8)) == 8
    for _ in range(3):
        assert not fleet.take_without(Charge(quota, "key"))
    fleet.repay()
    assert fleet.left(Charge(quota, "key")) == 0


@EACH_KIND
@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_a_sum_counts_from_the_return_on(kind: Callable[..., Quota], ahead: float) -> None:
    """By the clock of Redis, whatever that of the process says."""
    fleet, charge = Fleet(), Charge(kind(10, 60.0), "key")
    clock = SteppedClock(fleet.clock.now - ahead)
    fleet.store = MemoryStore(clock=clock)
    fleet.take_without(replace(charge, cost=9))
    fleet.repay()
    assert fleet.left(charge) == 1
    clock.advance(120.0)
    assert fleet.left(charge) == 10


STEPS = st.lists(
    st.sampled_from(["out", "lost", "back"]) | st.integers(1, 3) | st.floats(0.001, 0.2), min_size=10, max_size=60
)


@up_to(2_000)
@given(STEPS, st.sampled_from([1, 2]), st.sampled_from([1.0, 0.5]), st.integers(0, 1))
def test_outages_are_no_second_quota(steps: list[str | int | float], replicas: int, factor: float, first: int) -> None:
    """In no interval, whatever happens in which order: a share for each process is all that they add."""
    quota = TokenBucket(6, 1.0, burst_allowance_factor=factor if replicas == 1 else 1.0)
    fleet, is_out, process = Fleet(replicas), False, first
    for step in steps:
        if isinstance(step, float):
            fleet.clock.advance(step)
            fleet.out += step * is_out
        elif isinstance(step, int):
            process = (process + 1) % replicas
            charge = Charge(quota, "key", step)
            fleet.take_without(charge, process) if is_out else fleet.take(charge)
        elif step == "lost":
            fleet.repay(is_answered=False)
            is_out = True
        else:
            fleet.repay()
            is_out = step == "out"
    fleet.require_promise(2 * quota.burst, quota.limit)
