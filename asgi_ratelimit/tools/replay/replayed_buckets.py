"""The buckets of a replay: their plain states, without a lock; none is ever forgotten.

No ``await`` except in signatures, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from ...algorithms import State, decide, unused
from ...buckets import DEFAULT_NAME
from ...clock import Clock
from ...decision import Charge, Decision, Settled, Settlement, Take
from ...quotas import Quota
from ...stores import Decisions, Store
from ...stores.documents import Documents, MemoryDocuments

States: TypeAlias = dict[str, State]
"""The states of the buckets of one rule and quota, by key."""


class ReplayedBuckets(Store):
    """A store whose time is ``now``, in microseconds, and whose states can be read and written directly."""

    in_process = True

    def __init__(self) -> None:
        self.now = 0.0
        self._states: defaultdict[tuple[str, str, str], States] = defaultdict(dict)
        self._documents = MemoryDocuments(lambda: self.now)

    @property
    def clock(self) -> Clock | None:
        """None: its time is that of the log."""
        return None

    @property
    def documents(self) -> Documents:
        """Documents that nobody shares."""
        return self._documents

    def states(self, name: str | None, quota: Quota) -> States:
        """The states of a quota under the name of a rule."""
        return self._states[name or DEFAULT_NAME, quota.name, quota.kind]

    def take(self, takes: Sequence[Take]) -> Decisions:
        """One decision for each take, in order."""
        return Decisions(map(self._take, takes))

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer; nothing is taken."""
        states = self._states_of(take.charges)
        wait_us, after = decide(take.charges, states, self.now, take.max_wait_us)
        return Decision(take, after is not None, wait_us, states, self.now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Do nothing: a log does not contain the actual cost of a request."""
        return []

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges."""
        for charge in charges:
            for (name, quota, _), states in self._states.items():
                if (name, quota) == (charge.name or DEFAULT_NAME, charge.quota.name):
                    states.pop(charge.key, None)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _take(self, take: Take) -> Decision:
        states = self._states_of(take.charges)
        wait_us, after = decide(take.charges, states, self.now, take.max_wait_us)
        if after is None:
            return Decision(take, False, wait_us, states, self.now)
        for charge, state in zip(take.charges, after):
            if charge.cost:
                self.states(charge.name, charge.quota)[charge.key] = state
        return Decision(take, True, wait_us, after, self.now)

    def _states_of(self, charges: Sequence[Charge]) -> list[State]:
        stored = [self.states(charge.name, charge.quota).get(charge.key) for charge in charges]
        return [state or unused(charge.quota, self.now) for charge, state in zip(charges, stored)]
