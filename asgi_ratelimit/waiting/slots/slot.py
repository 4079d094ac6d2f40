"""A booked slot: when it comes, and how long it is good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from ...decision import Decision
from ...quotas import SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket

LATE_US = 100_000.0
"""A slot of a token bucket is good for this long: a caller that wakes later (the machine was asleep) has missed it."""

MOST_MISSED = 3
"""How often in a row a slot of a store elsewhere may be missed and booked anew; after that it is good for ever.

Otherwise, a store that answers more slowly than a window passes would be asked without end.
"""


@dataclass(slots=True)
class Slot:
    """A slot from ``at_us`` to ``until_us`` on the local clock, and the decision that booked it.

    ``ahead_us`` is the time of the store less that of the local clock, and ``missed`` how many slots were missed before
    it was booked in place of them.
    """

    at_us: float
    until_us: float
    decision: Decision
    ahead_us: float
    missed: int = 0

    def is_missed(self, now_us: float) -> bool:
        """Whether its time is over."""
        return now_us > self.until_us and self.missed < MOST_MISSED


def slot_of(decision: Decision, asked_us: float, now_us: float, missed: int = 0) -> Slot:
    """The slot of a decision that the store was asked for at ``asked_us``, and that came at ``now_us``.

    The store decided at some time between the two. So the slot begins no earlier than there, and ends no later.
    """
    delay_us, ahead_us = round(decision.delay * SECOND_US), decision.now_us - now_us
    at_us, states = now_us + delay_us, decision.states
    if len(states) == 1 and type(states[0].quota) is TokenBucket:
        return Slot(at_us, at_us + LATE_US, decision, ahead_us, missed)
    times: Sequence[float] | repeat[float] = decision.times_us or repeat(decision.now_us)
    good_us = min([_good_for_us(state.quota, store_us + delay_us) for state, store_us in zip(states, times)])
    return Slot(at_us, asked_us + delay_us + good_us, decision, ahead_us, missed)


def _good_for_us(quota: Quota, slot_us: float) -> float:
    """Microseconds from a slot until it is missed: a slot of a window is good until its window ends."""
    if isinstance(quota, FixedWindow):
        return quota.period_us - slot_us % quota.period_us - 1.0
    return quota.period_us if isinstance(quota, RollingWindow) else LATE_US
