"""The buckets of a replay: their plain states, without a lock; none is ever forgotten.

No ``await`` except in signatures, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from ...algorithms import State, decide, foresee
from ...buckets import DEFAULT_NAME
from ...decision import Charge, Decision, Settlement, Take
from ...quotas import Quota

States: TypeAlias = dict[str, State]
"""The states of the buckets of one rule and quota, by key."""


class ReplayedBuckets:
    """A store whose time is ``now``, in microseconds, and whose states can be read and written directly."""

    in_process = True

    def __init__(self) -> None:
        self.now = 0.0
        self._states: defaultdict[tuple[str, str, str], States] = defaultdict(dict)

    def states(self, name: str | None, quota: Quota) -> States:
        """The states of a quota under the name of a rule."""
        return self._states[name or DEFAULT_NAME, quota.name, quota.kind]

    def submit(self, take: Take) -> Decision:
        """The decision of one take."""
        decision, written = decide(take, self._states_of(take.charges), self.now)
        for charge, state in zip(take.charges, written):
            if state is not None:
                self.states(charge.name, charge.quota)[charge.key] = state
        return decision

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in order."""
        return [self.submit(take) for take in takes]

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer; nothing is taken."""
        return foresee(take, self._states_of(take.charges), self.now)

    async def settle(self, settlement: Settlement) -> None:
        """Do nothing: a log does not contain the actual cost of a request."""

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges."""
        for charge in charges:
            for (name, quota, _), states in self._states.items():
                if (name, quota) == (charge.name or DEFAULT_NAME, charge.quota.name):
                    states.pop(charge.key, None)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _states_of(self, charges: Sequence[Charge]) -> list[State | None]:
        return [self.states(charge.name, charge.quota).get(charge.key) for charge in charges]
