"""The outage ledger: what the store is charged with when it is back."""

from __future__ import annotations

from random import getrandbits

import pytest
from asgi_ratelimit.stores.redis.cluster.splitting import split
from asgi_ratelimit.stores.redis.outage.local_decisions import LocalDecisions
from asgi_ratelimit.stores.redis.script_actions import Repaid, Repayment
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import pack, settlement_of
from asgi_ratelimit.decision import Charge, Decision, SettledCharge, Settlement, Take
from asgi_ratelimit.errors import StoreTimeout
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.operations import full_refund, settled_as, take_text
from asgi_ratelimit.stores.redis.outage import ledger as module
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
        assert run_in_place(self.local.ledger.settle(settlement)) == []

    def due(self) -> list[Repayment | Settlement]:
        return list(self.local.ledger.collect(lambda charge: True))

    def collect(self) -> list[Repayment | Settlement]:
        """All entries, which are removed."""
        entries = self.due()
        for entry in entries:
            self.local.ledger.remove(entry)
        return entries

    def units(self) -> dict[str, float]:
        """The units in the ledger, by key; collecting them removes them."""
        settled = [each for entry in self.collect() for each in entry.settled_charges]
        return {each.charge.key: each.actual - each.charge.cost for each in settled}

    def repay(self) -> None:
        """Charge the store with all that is in the ledger."""
        for entry in self.collect():
            run_in_place(self.store.settle(Settlement(float(getrandbits(53)), tuple(entry.settled_charges))))

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
    """The local bucket started from what the store has reported."""
    (charged,) = run_in_place(outage.store.take((Take((Charge(quota, "key", 5),)),)))
    state = outage.store.state_of(Charge(quota, "key"))
    assert charged.take is not None
    assert state is not None
    outage.local.latest_values.update({charged.take.charges[0].bucket: pack(quota, state)})
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
    (entry,) = outage.local.ledger.collect(lambda charge: charge.key == "b")
    outage.local.ledger.remove(entry)
    assert entry.charges[0].key == "b"
    assert outage.units() == {"a": 1, "c": 1}


def test_an_entry_stays_until_the_store_has_carried_it_out(outage: Outage) -> None:
    """It is the same operation, of as many units, however often it is sent; what is taken later is another one."""
    for key in "abc":
        outage.take(KINDS[0], 1, key)
    first = outage.due()
    outage.take(KINDS[0], 5, "a")
    outage.local.ledger.remove(first[1])
    later = outage.due()
    assert [entry.charges[0].key for entry in later] == ["a", "c", "a"]
    assert later[:2] == [first[0], first[2]]
    assert later[2].settled_charges[0].actual - later[2].charges[0].cost == 5
    assert outage.units() == {"a": 5, "c": 1}
    assert not outage.local.ledger


def test_a_take_with_an_operation_is_repaid_under_it(outage: Outage) -> None:
    """Once, beside what was taken without: altogether as much as was taken."""
    take = Take((Charge(KINDS[0], "key", 3),), operation="id")
    assert [outage.local.decide(take).remaining for _ in range(2)] == [17, 17]
    outage.take(KINDS[0], 4)
    entries = [entry for entry in outage.due() if isinstance(entry, Repayment)]
    assert [each.actual - each.charge.cost for entry in entries for each in entry.settled_charges] == [3, 4]
    assert entries[0].operation == take_text(take) != entries[1].operation


def test_what_has_run_off_is_not_repaid(outage: Outage) -> None:
    """Of takes with an operation neither; but they are remembered in the store."""
    for number in range(3):
        outage.local.decide(Take((Charge(KINDS[0], "key", 4),), operation=str(number)))
    outage.clock.advance(10 * 3600 / 20)
    owed = [each.actual - each.charge.cost for entry in outage.due() for each in entry.settled_charges]
    assert owed == [2, 0, 0]


def test_a_refund_of_a_take_with_an_operation(outage: Outage) -> None:
    """It is neither repaid nor remembered."""
    decision = outage.local.decide(Take((Charge(KINDS[0], "key", 3),), operation="id"))
    settlement = full_refund(decision)
    assert settlement is not None
    assert run_in_place(outage.local.ledger.settle(settlement)) == []
    assert outage.due() == []
    assert outage.local.decide(Take((Charge(KINDS[0], "key", 3),), operation="id")).remaining == 17


def test_a_settlement_is_postponed(outage: Outage) -> None:
    """It is carried out once, however often it is sent."""
    charges = (Charge(KINDS[0], "a", 5), Charge(KINDS[1], "b", 5, "other"))
    (decision,) = run_in_place(outage.store.take((Take(charges),)))
    settlement = settlement_of(decision, [2.0, 8.0])
    assert settlement is not None
    outage.local.ledger.postpone(settlement)
    collected = outage.collect()
    assert collected == [settlement]
    for _ in range(3):
        run_in_place(outage.store.settle(settlement))
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
    assert len(outage.collect()) == 1


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_a_refund_during_the_repayment_comes_after_it(outage: Outage, quota: Quota) -> None:
    """It is not known whether the store has been charged, so the units are given back as soon as it has."""
    decision = outage.take(quota, 7)
    (entry,) = outage.due()
    outage.refund(decision)
    assert outage.due() == [entry]
    outage.local.ledger.remove(entry, Repaid(1.0, [booked(entry.settled_charges[0])]))
    (settlement,) = outage.collect()
    (settled,) = settlement.settled_charges
    assert (settled.charge.cost, settled.actual, settled.generation) == (7, 0, 5)


@pytest.mark.parametrize("quota", KINDS, ids=repr)
def test_a_refund_after_the_repayment_is_for_the_store(outage: Outage, quota: Quota) -> None:
    """Once for each decision, and not more than was repaid; a debit is for the store as well."""
    first, second, third = [outage.take(quota, cost) for cost in (2, 3, 4)]
    (entry,) = outage.due()
    outage.local.ledger.remove(entry, Repaid(1.0, [booked(entry.settled_charges[0])]))
    sent = [settlement_of(decision, [actual]) for decision, actual in ((first, 0), (first, 0), (second, 1), (third, 9))]
    there = [each for settlement in sent if settlement for each in run_in_place(outage.local.ledger.settle(settlement))]
    assert [each.settled_charges[0].charge.cost - each.settled_charges[0].actual for each in there] == [2, 2, -5]
    assert [each.degraded for each in there] == [False] * 3


def test_a_decision_of_a_later_outage_is_settled_here(outage: Outage) -> None:
    """Although an earlier outage of its bucket has been repaid."""
    outage.take(KINDS[0], 2)
    outage.repay()
    outage.clock.advance(1)
    outage.refund(outage.take(KINDS[0], 7))
    assert outage.units() == {}


def booked(settled: SettledCharge) -> SettledCharge:
    """What the store says of a repayment."""
    units = settled.actual - settled.charge.cost
    charge = Charge(settled.charge.quota, settled.charge.key, units)
    return SettledCharge(charge, 1.8e15, 5, 0.0, 1.8e15, units)


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


def test_parts_of_an_operation_on_a_cluster_are_settled_as_one() -> None:
    """Each in its own slot, as the settlement of the first one: so all others know it."""
    outage = Outage()
    outage.local = LocalDecisions("local", 1, outage.clock, lambda action: [part.action for part in split(action)])
    take = Take((Charge(KINDS[0], "a", 4), Charge(KINDS[1], "b", 4)), may_settle=True, operation="id")
    settlement = settled_as(outage.local.decide(take), [1.0, 6.0])
    assert settlement is not None
    first, second = outage.due()
    outage.local.ledger.remove(second, Repaid(8.0, [booked(second.settled_charges[0])]))
    assert run_in_place(outage.local.ledger.settle(settlement)) == []
    outage.local.ledger.remove(first, Repaid(7.0, [booked(first.settled_charges[0])]))
    there = [each for each in outage.collect() if isinstance(each, Settlement)]
    assert [(each.id, each.charges[0].key) for each in there] == [(7.0, "a"), (7.0, "b")]
    assert [each.settled_charges[0].actual - each.charges[0].cost for each in there] == [-3, 2]
