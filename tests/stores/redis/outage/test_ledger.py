"""The outage ledger: what the store is charged with when it is back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import settlement_of
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.errors import StoreTimeout
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.redis.outage import ledger as module
from asgi_ratelimit.stores.redis.outage.local_decisions import LocalDecisions
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.background_loop import run_in_place
from tests.support import strategies

KINDS = [TokenBucket(20, 3600), FixedWindow(20, 3600), RollingWindow(20, 3600)]


class Outage:
    """Local decisions in place of a store that is out, and the store that is charged with them later."""

    def __init__(self, replicas: int = 1) -> None:
        self.clock = SteppedClock()
        self.local = LocalDecisions("local", replicas, self.clock)
        self.local.store_is_out(StoreTimeout("too late"))
        self.store = MemoryStore(clock=self.clock)

    def take(self, quota: Quota, cost: float = 1, key: str = "key", max_wait: float = 0.0) -> Decision:
        """A decision in place of the store's."""
        return self.local.decide(Take((Charge(quota, key, cost),), max_wait, may_settle=True))

    def refund(self, decision: Decision) -> None:
        settlement = settlement_of(decision, [0.0])
        assert settlement is not None
        run_in_place(self.local.settle(settlement))

    def collect(self) -> list[Settlement]:
        return list(self.local.ledger.collect(lambda charge: True))

    def units(self) -> dict[str, float]:
        """The units in the ledger, by key; collecting them removes them."""
        settled = [each for settlement in self.collect() for each in settlement.settled_charges]
        return {each.charge.key: each.actual - each.charge.cost for each in settled}

    def repay(self) -> None:
        """Charge the store with all that is in the ledger."""
        for settlement in self.collect():
            run_in_place(self.store.settle(settlement))

    def left(self, quota: Quota) -> int:
        """What the store has left."""
        return run_in_place(self.store.peek(Take((Charge(quota, "key"),)))).remaining


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_was_admitted_is_in_the_ledger(outage: Outage, quota: Quota) -> None:
    """For each key; it is collected once."""
    for cost in (1, 2.5, 4):
        outage.take(quota, cost)
    outage.take(quota, 3, "other")
    outage.take(quota, 50, "refused")
    assert outage.units() == {"key": 7.5, "other": 3}
    assert outage.units() == {}
    assert not outage.local.ledger


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_the_bucket_in_the_store_is_charged(outage: Outage, quota: Quota) -> None:
    """On top of what the store had charged before."""
    run_in_place(outage.store.take((Take((Charge(quota, "key", 5),)),)))
    outage.take(quota, 7)
    outage.repay()
    assert outage.left(quota) == 8


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_the_store_has_charged_is_not_in_the_ledger(outage: Outage, quota: Quota) -> None:
    """The local bucket started from the store's state."""
    (charged,) = run_in_place(outage.store.take((Take((Charge(quota, "key", 5),)),)))
    state = outage.store.state_of(Charge(quota, "key"))
    assert charged.take is not None
    outage.local.latest_states.update({charged.take.charges[0].bucket: (charged.take.charges[0].quota, state)})
    outage.take(quota, 7)
    assert outage.units() == {"key": 7}
    outage.take(quota, 2)  # the next outage begins with what is left here
    assert outage.units() == {"key": 2}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_units_that_have_come_back_are_not_in_the_ledger(outage: Outage, quota: Quota) -> None:
    """The longer ago they were taken, the less they count."""
    outage.take(quota, 10)
    outage.clock.advance(2 * 3600)
    assert outage.units() == {}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_a_refund_is_not_in_the_ledger(outage: Outage, quota: Quota) -> None:
    """Nor is a slot that was booked ahead and cancelled."""
    decisions = [outage.take(quota, 5, max_wait=10_000.0) for _ in range(6)]
    for decision in (decisions[0], decisions[5]):
        outage.refund(decision)
    assert outage.units() == {"key": 20}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_was_booked_ahead_is_in_the_ledger(outage: Outage, quota: Quota) -> None:
    """The store books the same ahead."""
    for _ in range(5):
        assert outage.take(quota, 8, max_wait=100_000.0).allowed
    outage.repay()
    (decision,) = run_in_place(outage.store.take((Take((Charge(quota, "key", 20),), 100_000.0),)))
    assert decision.delay > 3600


def test_each_replica_reports_what_it_admitted() -> None:
    """No more than that, although its limit is a share of the whole."""
    outage = Outage(replicas=4)
    assert sum(outage.take(KINDS[0]).allowed for _ in range(30)) == 5
    assert outage.units() == {"key": pytest.approx(5)}
    assert [each.charge.quota for settlement in outage.collect() for each in settlement.settled_charges] == []


def test_the_whole_quota_is_charged() -> None:
    """The store's quota, not a replica's share of it."""
    outage = Outage(replicas=4)
    outage.take(KINDS[0])
    assert [each.charge.quota for settlement in outage.collect() for each in settlement.settled_charges] == [KINDS[0]]


def test_each_node_collects_its_own_buckets(outage: Outage) -> None:
    """The others stay in the ledger."""
    for key in "abc":
        outage.take(KINDS[0], 1, key)
    assert [settled.charges[0].key for settled in outage.local.ledger.collect(lambda charge: charge.key == "b")] == [
        "b"
    ]
    assert outage.units() == {"a": 1, "c": 1}


def test_what_is_not_collected_stays(outage: Outage) -> None:
    """Collecting may stop at any point."""
    for key in "abc":
        outage.take(KINDS[0], 1, key)
    collected = outage.local.ledger.collect(lambda charge: True)
    assert next(collected).charges[0].key == "a"
    assert outage.units() == {"b": 1, "c": 1}
    assert list(collected) == []


def test_a_settlement_is_postponed(outage: Outage) -> None:
    """For each bucket by itself; it is carried out once, however often it is sent."""
    charges = (Charge(KINDS[0], "a", 5), Charge(KINDS[1], "b", 5, "other"))
    (decision,) = run_in_place(outage.store.take((Take(charges),)))
    settlement = settlement_of(decision, [2.0, 8.0])
    assert settlement is not None
    outage.local.ledger.postpone(settlement)
    collected = outage.collect()
    assert [settled.charges for settled in collected] == [[charges[0]], [charges[1]]]
    for settled in [*collected, *collected, settlement]:
        run_in_place(outage.store.settle(settled))
    left = [run_in_place(outage.store.peek(Take((charge,)))).states[0].remaining for charge in charges]
    assert left == [18, 12]


def test_a_ledger_is_bounded(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys are used while the store is out."""
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    for key in "abcde":
        outage.take(KINDS[0], 1, key)
    assert set(outage.units()) == {"a", "b", "c"}
    settlement = settlement_of(run_in_place(outage.store.take((Take((Charge(KINDS[0], "a"),)),)))[0], [0.0])
    assert settlement is not None
    for _ in range(10):
        outage.local.ledger.postpone(settlement)
    assert len(outage.collect()) == 3


TAKES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 0.5, 7.0]), st.booleans(), st.integers(0, 10**6)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(strategies.quotas("one"), TAKES)
def test_a_ledger_never_holds_more_than_was_admitted(quota: Quota, takes: list[tuple[float, bool, int]]) -> None:
    """Nor less than nothing, whatever is taken, refunded and waited for."""
    outage, taken = Outage(), 0.0
    for cost, is_final, wait in takes:
        decision = outage.take(quota, min(cost, quota.most))
        if decision.allowed and is_final:
            taken += decision.granted
        elif decision.allowed:
            outage.refund(decision)
        outage.clock.advance(wait / 1e6)
    rounding = 1e-6 * len(takes)  # windows count millionths of a unit
    assert 0 <= outage.units().get("key", 0.0) <= taken * (1 + 1e-9) + rounding
