"""What a quota would do with requests that come at given times, when it limits and when it paces.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..algorithms import State, decide
from ..decision import Charge, Take
from ..quotas import SECOND_US, Quota

QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """What became of each request: when it came, and when it went, in seconds; ``None`` for one that was refused."""

    came: tuple[float, ...]
    went: tuple[float | None, ...]

    @property
    def admitted(self) -> int:
        """How many went."""
        return len(self.went) - self.refused

    @property
    def refused(self) -> int:
        """How many did not."""
        return self.went.count(None)

    @property
    def waits(self) -> list[float]:
        """How long those that went had waited, in seconds, the shortest first."""
        return sorted([went - came for came, went in zip(self.came, self.went) if went is not None])

    def quantiles(self) -> tuple[float, ...]:
        """Half of those that went, nine in ten, 99 in 100, and all waited no longer than these seconds."""
        waits = self.waits
        return tuple([waits[math.ceil(share * len(waits)) - 1] if waits else math.nan for share in QUANTILES])

    def busiest(self, seconds: float = 1.0) -> int:
        """The most that went in any interval of so many seconds."""
        times, most, first = sorted([went for went in self.went if went is not None]), 0, 0
        for last, at in enumerate(times):
            while at - times[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most


def simulate(quotas: Sequence[Quota], times: Sequence[float], max_delay: float = 0.0, cost: float = 1) -> Run:
    """Let requests of one key come at ``times``, in seconds and in order, that wait up to ``max_delay`` seconds each.

    0 is rate limiting, ``math.inf`` pacing without end.
    """
    take = Take(tuple([Charge(quota, "key", cost) for quota in quotas]), max_delay)
    states: Sequence[State | None] = [None] * len(quotas)
    went: list[float | None] = []
    for at in times:
        decision, written = decide(take, states, float(round(at * SECOND_US)))
        states = [old if new is None else new for old, new in zip(states, written)]
        went.append(at + decision.delay if decision.allowed else None)
    return Run(tuple(times), tuple(went))
