"""Simulates a quota with requests that arrive at given times, in rate limiting and in pacing.

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
class Simulation:
    """When each request arrived and when it was admitted, in seconds; ``None`` for one that was refused."""

    arrived_at: tuple[float, ...]
    admitted_at: tuple[float | None, ...]

    @property
    def admitted(self) -> int:
        """How many requests were admitted."""
        return len(self.admitted_at) - self.refused

    @property
    def refused(self) -> int:
        """How many requests were refused."""
        return self.admitted_at.count(None)

    @property
    def waits(self) -> list[float]:
        """How long each admitted request waited, in seconds, the shortest wait first."""
        times = zip(self.arrived_at, self.admitted_at)
        return sorted([admitted - arrived for arrived, admitted in times if admitted is not None])

    def quantiles(self) -> tuple[float, ...]:
        """The longest wait in seconds of the quickest 50 %, 90 %, 99 % and 100 % of admitted requests."""
        waits = self.waits
        return tuple([waits[math.ceil(share * len(waits)) - 1] if waits else math.nan for share in QUANTILES])

    def busiest(self, seconds: float = 1.0) -> int:
        """The most requests that were admitted in any interval of ``seconds``."""
        times, most, first = sorted([time for time in self.admitted_at if time is not None]), 0, 0
        for last, time in enumerate(times):
            while time - times[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most


def simulate(quotas: Sequence[Quota], times: Sequence[float], max_delay: float = 0.0, cost: float = 1) -> Simulation:
    """The outcome of requests of one key that arrive at ``times`` and wait at most ``max_delay`` seconds each.

    Times are in seconds and in order. A ``max_delay`` of 0 is rate limiting, ``math.inf`` is pacing without a limit.
    """
    take = Take(tuple([Charge(quota, "key", cost) for quota in quotas]), max_delay)
    states: Sequence[State | None] = [None] * len(quotas)
    admitted_at: list[float | None] = []
    for time in times:
        decision, written = decide(take, states, float(round(time * SECOND_US)))
        states = [old if new is None else new for old, new in zip(states, written)]
        admitted_at.append(time + decision.delay if decision.allowed else None)
    return Simulation(tuple(times), tuple(admitted_at))
