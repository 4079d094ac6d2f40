"""A store for tests of operations that several callers take: it notes what goes back."""

from __future__ import annotations

from collections.abc import Sequence

from asgi_ratelimit import Take
from asgi_ratelimit.stores import MemoryStore, Settled, Settlement
from asgi_ratelimit.stores.base import Decisions
from asgi_ratelimit.testing import SteppedClock


class NotingStore(MemoryStore):
    """It notes the ids of all decisions that have charged anything, and of those that were given back.

    The charges of a decision may be given back one by one, but each of them only once.
    """

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock=clock)
        self.charged: list[int] = []
        self.given_back: list[int] = []
        self.given_back_charges: list[tuple[int, str]] = []

    def take(self, takes: Sequence[Take]) -> Decisions:
        """One decision for each take."""
        decisions = super().take(takes)
        self.charged += [decision.id for decision in decisions if decision.allowed and not decision.repeated]
        return decisions

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle, once for each id."""
        for each in settlements:
            if not each.actual:
                if each.id not in self.given_back:
                    self.given_back.append(each.id)
                self.given_back_charges.append((each.id, each.charge.bucket))
        return await super().settle(settlements)
