"""What a middleware and the dependencies behind it have in common: where they decide, and how they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..algorithms import settlement_of
from ..decision import Decision
from ..headers import Dialect
from ..hooks import Hooks
from ..stores import Store
from .blocks import penalized
from .keys import KeyFunction
from .lines import Bill
from .responses import Refusal


@dataclass(slots=True, eq=False)
class Gate:
    """A store, and what is told of its decisions to clients and hooks; ``key`` is that of who names none."""

    name: str
    store: Store
    key: KeyFunction
    dialect: Dialect | None
    refusal: Refusal
    hooks: Hooks

    async def decide(self, bill: Bill) -> list[Decision]:
        """The decision of a bill's take that is enforced, if there is one; hooks are told of all."""
        return await self.noted(bill, await self.store.take(bill.takes))

    async def noted(self, bill: Bill, decisions: list[Decision]) -> list[Decision]:
        """Those decisions that are enforced, after penalties were imposed and hooks told of all."""
        enforced = decisions[: bill.is_enforced]
        if bill.has_looks:
            enforced = [await penalized(self.store, decision) for decision in enforced]
        shadows = [replace(decision, shadow=True) for decision in decisions[bill.is_enforced :]]
        if self.hooks:
            for decision in (*enforced, *shadows):
                self.hooks(self.name, decision)
        return enforced


async def settle(store: Store, decision: Decision, actual: Sequence[float]) -> None:
    """Make a decision come to the ``actual`` cost of each of its charges, once. May raise ``StoreError``."""
    if decision.settled:
        return
    settlement = settlement_of(decision, actual)
    if settlement is not None:
        await store.settle(settlement)
    decision.settled = True
