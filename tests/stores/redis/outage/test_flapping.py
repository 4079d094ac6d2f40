"""The outage ledger over a line that flaps: no unit is lost, and none is added."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from asgi_ratelimit.stores.redis.outage.repayments import debited
from asgi_ratelimit.stores.redis.script_actions import Repaid, Repayment
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.quotas import FixedWindow
from asgi_ratelimit.stores.operations import settled_as, settlement_text, take_text
from asgi_ratelimit.waiting.background_loop import run_in_place
from tests.stores.redis.outage.test_ledger import Outage, booked
from tests.support.examples import up_to


class Flapping:
    """A store that carries out each operation once, over a line that may lose its answers."""

    def __init__(self) -> None:
        self.outage = Outage()
        self.units: Counter[str] = Counter()
        self.admitted: Counter[str] = Counter()
        self.decisions: list[Decision] = []
        self._done: dict[str, Repaid] = {}
        self._ids = count(1)
        self._taken: set[str] = set()

    def take(self, key: str, cost: float, operation: str | None, arrives: bool) -> None:
        """A take whose answer does not come; where it ``arrives``, it is carried out all the same."""
        take = Take((Charge(WIDE, key, cost),), may_settle=True, operation=operation)
        if operation is not None and arrives:
            self._carry_out(Repayment(take_text(take), (debited(take.charges[0], cost),), 0.0))
        decision = self.outage.local.decide(take, is_unclear=arrives)
        assert decision.allowed
        if operation is None or take_text(take) not in self._taken:
            self._taken.add(take_text(take) if operation is not None else "")
            self.decisions.append(decision)
            self.admitted[key] += decision.granted

    def settle(self, number: int, actual: float) -> None:
        """Settle a decision that is not settled yet."""
        if not self.decisions:
            return
        decision = self.decisions.pop(number % len(self.decisions))
        settlement = settled_as(decision, [actual])
        assert decision.take is not None
        if decision.take.operation is not None and actual == 0:
            self._taken.discard(take_text(decision.take))
        self.admitted[decision.take.charges[0].key] += actual - decision.granted
        if settlement is not None:
            for there in run_in_place(self.outage.local.ledger.settle(settlement)):
                self._send(there, is_lost=number % 3 == 0)

    def repay(self, lost: int) -> None:
        """Send some entries; every ``lost``-th answer is lost."""
        for number, entry in enumerate(self.outage.local.ledger.collect(lambda charge: True, 3)):
            self._send(entry, is_lost=lost > 0 and number % lost == 0)

    def _send(self, entry: Repayment | Settlement, is_lost: bool) -> None:
        repaid = self._carry_out(entry)
        if not is_lost:
            self.outage.local.ledger.remove(entry, repaid)
        elif isinstance(entry, Settlement):
            self.outage.local.ledger.postpone(entry)

    def _carry_out(self, entry: Repayment | Settlement) -> Repaid:
        text = entry.operation if isinstance(entry, Repayment) else settlement_text(entry)
        if text not in self._done:
            for settled in entry.settled_charges:
                self.units[settled.charge.key] += settled.actual - settled.charge.cost
            charged = [each for each in entry.settled_charges if each.actual > each.charge.cost]
            self._done[text] = Repaid(float(next(self._ids)), list(map(booked, charged)))
            if isinstance(entry, Settlement) and entry.undone is not None:
                self._done.pop(take_text(entry.undone), None)
        return self._done[text]


WIDE = FixedWindow(1_000_000, 86_400 * 365)
KEYS = st.sampled_from("ab")
FLAPS = st.lists(
    st.tuples(st.just("take"), KEYS, st.integers(1, 5), st.none() | st.integers(0, 10**9).map(str), st.booleans())
    | st.tuples(st.just("settle"), st.integers(0, 50), st.integers(0, 7))
    | st.tuples(st.just("repay"), st.integers(0, 3)),
    max_size=40,
)


@up_to(300)
@given(FLAPS)
def test_a_flapping_line_loses_and_adds_no_units(steps: list[tuple[Any, ...]]) -> None:
    """Whatever is taken and settled, whenever entries are sent, and whichever answers are lost."""
    line = Flapping()
    for verb, *arguments in steps:
        line.outage.clock.advance(1e-3)
        getattr(line, verb)(*arguments)
    for _ in range(200):
        line.repay(lost=0)
    assert not line.outage.local.ledger
    assert +line.units == +line.admitted
