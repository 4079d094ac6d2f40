"""What was taken while the store was out, and is owed to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import settlement_of
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.errors import StoreTimeout
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.redis.outage import ledger as _debts
from asgi_ratelimit.stores.redis.outage.local_decisions import Failover
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.background_loop import run_in_place
from tests.support import strategies

KINDS = [TokenBucket(20, 3600), FixedWindow(20, 3600), RollingWindow(20, 3600)]


class Outage:
    """A failover in place of a store that is out, and the store that its debts are paid to."""

    def __init__(self, replicas: int = 1) -> None:
        self.clock = SteppedClock()
        self.failover = Failover("local", replicas, self.clock)
        self.failover.out(StoreTimeout("too late"))
        self.store = MemoryStore(clock=self.clock)

    def take(self, quota: Quota, cost: float = 1, key: str = "key", max_wait: float = 0.0) -> Decision:
        """A decision in place of the store's."""
        return self.failover.decide(Take((Charge(quota, key, cost),), max_wait))

    def refund(self, decision: Decision) -> None:
        settlement = settlement_of(decision, [0.0])
        assert settlement is not None
        run_in_place(self.failover.settle(settlement))

    def due(self) -> list[Settlement]:
        return list(self.failover.debts.due(lambda charge: True))

    def owed(self) -> dict[str, float]:
        """The units that are due, by key."""
        lines = [line for settlement in self.due() for line in settlement.lines]
        return {line.charge.key: line.actual - line.charge.cost for line in lines}

    def pay(self) -> None:
        for settlement in self.due():
            run_in_place(self.store.settle(settlement))

    def left(self, quota: Quota) -> int:
        """What the store has left."""
        return run_in_place(self.store.peek(Take((Charge(quota, "key"),)))).remaining


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_was_taken_is_owed(outage: Outage, quota: Quota) -> None:
    """For each key; it is due once."""
    for cost in (1, 2.5, 4):
        outage.take(quota, cost)
    outage.take(quota, 3, "other")
    outage.take(quota, 50, "refused")
    assert outage.owed() == {"key": 7.5, "other": 3}
    assert outage.owed() == {}
    assert not outage.failover.debts


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_it_is_paid_to_the_bucket(outage: Outage, quota: Quota) -> None:
    """On top of what the store knows of."""
    run_in_place(outage.store.take((Take((Charge(quota, "key", 5),)),)))
    outage.take(quota, 7)
    outage.pay()
    assert outage.left(quota) == 8


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_the_store_knows_is_not_owed(outage: Outage, quota: Quota) -> None:
    """The bucket went on from there."""
    (known,) = run_in_place(outage.store.take((Take((Charge(quota, "key", 5),)),)))
    state = outage.store.state_of(Charge(quota, "key"))
    assert known.take is not None
    outage.failover.follow({known.take.charges[0].bucket: (known.take.charges[0].quota, state)})
    outage.take(quota, 7)
    assert outage.owed() == {"key": 7}
    outage.take(quota, 2)  # the next outage begins with what is left here
    assert outage.owed() == {"key": 2}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_has_come_back_is_not_owed(outage: Outage, quota: Quota) -> None:
    """The longer ago it was taken, the less of it counts."""
    outage.take(quota, 10)
    outage.clock.advance(2 * 3600)
    assert outage.owed() == {}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_was_given_back_is_not_owed(outage: Outage, quota: Quota) -> None:
    """Nor is a slot that was booked ahead and is free again."""
    decisions = [outage.take(quota, 5, max_wait=10_000.0) for _ in range(6)]
    for decision in (decisions[0], decisions[5]):
        outage.refund(decision)
    assert outage.owed() == {"key": 20}


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_what_was_booked_ahead_is_owed(outage: Outage, quota: Quota) -> None:
    """The store books as much ahead."""
    for _ in range(5):
        assert outage.take(quota, 8, max_wait=100_000.0).allowed
    outage.pay()
    (decision,) = run_in_place(outage.store.take((Take((Charge(quota, "key", 20),), 100_000.0),)))
    assert decision.delay > 3600


def test_each_of_several_replicas_owes_what_it_has_taken() -> None:
    """Not more, though its own limit is a part of the whole."""
    outage = Outage(replicas=4)
    assert sum(outage.take(KINDS[0]).allowed for _ in range(30)) == 5
    assert outage.owed() == {"key": pytest.approx(5)}
    assert [line.charge.quota for settlement in outage.due() for line in settlement.lines] == []


def test_a_debt_keeps_the_quota_whole() -> None:
    """The store's own limit is what is charged, not a replica's part."""
    outage = Outage(replicas=4)
    outage.take(KINDS[0])
    assert [line.charge.quota for settlement in outage.due() for line in settlement.lines] == [KINDS[0]]


def test_each_store_is_told_of_its_own(outage: Outage) -> None:
    """What belongs elsewhere is due there."""
    for key in "abc":
        outage.take(KINDS[0], 1, key)
    assert [settled.charges[0].key for settled in outage.failover.debts.due(lambda charge: charge.key == "b")] == ["b"]
    assert outage.owed() == {"a": 1, "c": 1}


def test_what_was_not_told_stays_due(outage: Outage) -> None:
    """Whoever tells the store may stop at any point."""
    for key in "abc":
        outage.take(KINDS[0], 1, key)
    due = outage.failover.debts.due(lambda charge: True)
    assert next(due).charges[0].key == "a"
    assert outage.owed() == {"b": 1, "c": 1}
    assert list(due) == []


def test_a_settlement_is_postponed(outage: Outage) -> None:
    """For each of its buckets by itself, and it is carried out once, however often that is tried."""
    charges = (Charge(KINDS[0], "a", 5), Charge(KINDS[1], "b", 5, "other"))
    (decision,) = run_in_place(outage.store.take((Take(charges),)))
    settlement = settlement_of(decision, [2.0, 8.0])
    assert settlement is not None
    outage.failover.debts.postpone(settlement)
    due = outage.due()
    assert [settled.charges for settled in due] == [[charges[0]], [charges[1]]]
    for settled in [*due, *due, settlement]:
        run_in_place(outage.store.settle(settled))
    left = [run_in_place(outage.store.peek(Take((charge,)))).states[0].remaining for charge in charges]
    assert left == [18, 12]


def test_they_are_bounded(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of keys comes while the store is out."""
    monkeypatch.setattr(_debts, "MAX_DEBTS", 3)
    for key in "abcde":
        outage.take(KINDS[0], 1, key)
    assert set(outage.owed()) == {"a", "b", "c"}
    settlement = settlement_of(run_in_place(outage.store.take((Take((Charge(KINDS[0], "a"),)),)))[0], [0.0])
    assert settlement is not None
    for _ in range(10):
        outage.failover.debts.postpone(settlement)
    assert len(outage.due()) == 3


TAKES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 0.5, 7.0]), st.booleans(), st.integers(0, 10**6)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(strategies.quotas("one"), TAKES)
def test_nobody_ever_owes_more_than_was_taken(quota: Quota, takes: list[tuple[float, bool, int]]) -> None:
    """Nor less than nothing, whatever is taken, given back and waited for."""
    outage, taken = Outage(), 0.0
    for cost, kept, wait in takes:
        decision = outage.take(quota, min(cost, quota.most))
        if decision.allowed and kept:
            taken += decision.granted
        elif decision.allowed:
            outage.refund(decision)
        outage.clock.advance(wait / 1e6)
    assert 0 <= outage.owed().get("key", 0.0) <= taken * (1 + 1e-9)
