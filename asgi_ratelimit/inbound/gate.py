"""What a middleware and the dependencies behind it have in common: where they decide, and how they answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..decision import Decision
from ..headers import Dialect
from ..hooks import Hooks
from ..keys.request_keys import KeyFunction
from ..stores import Store, TakeSoon, take_soon_of
from .answers.responses import Refusal
from .bills import Bill
from .penalties.blocks import penalized


@dataclass(slots=True, eq=False)
class Gate:
    """A store, and what is told of its decisions to clients and hooks; ``key`` is that of who names none."""

    name: str
    store: Store
    key: KeyFunction
    dialect: Dialect | None
    refusal: Refusal
    hooks: Hooks
    is_observed: bool = field(init=False)
    take_soon: TakeSoon = field(init=False)

    def __post_init__(self) -> None:
        self.is_observed = bool(self.hooks)
        self.take_soon = take_soon_of(self.store)

    async def decide(self, bill: Bill) -> list[Decision]:
        """The decision of a bill's take that is enforced, if there is one; hooks are told of all."""
        taken = self.take_soon(bill.takes)
        decisions = taken if isinstance(taken, list) else await taken
        return await self.noted(bill, decisions) if self.is_observed or not bill.is_usual else decisions

    async def noted(self, bill: Bill, decisions: list[Decision]) -> list[Decision]:
        """Those decisions that are enforced, after penalties were imposed and hooks told of all."""
        enforced = decisions[: bill.is_enforced]
        if bill.has_looks:
            enforced = [await penalized(self.store, decision) for decision in enforced]
        shadows = [replace(decision, shadow=True) for decision in decisions[bill.is_enforced :]]
        if self.is_observed:
            for decision in (*enforced, *shadows):
                self.hooks(self.name, decision)
        return enforced
