"""A booked slot: when it comes, and how long it is good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from ...decision import Decision
from ...quotas import SECOND_US, FixedWindow, Quota, TokenBucket

LATE_US = 100_000.0
"""A slot of a token bucket is good for this long: a caller that wakes later (the machine was asleep) has missed it."""

MOST_MISSED = 3
"""How often in a row a slot may be missed and booked anew; after that it is good for ever.

Otherwise, a store that answers more slowly than a window passes would be asked without end.
"""


@dataclass(slots=True)
class Slot:
    """A slot from ``at_us`` to ``until_us`` on the local clock, and the decision that booked it.

    ``missed`` is how many slots were missed before it was booked in place of them.
    """

    at_us: float
    until_us: float
    decision: Decision
    missed: int = 0

    def is_missed(self, now_us: float) -> bool:
        """Whether its time is over."""
        return now_us > self.until_us and self.missed < MOST_MISSED


def slot_of(decision: Decision, asked_us: float, now_us: float, missed: int = 0) -> Slot:
    """The slot of a decision that the store was asked for at ``asked_us``, and that came at ``now_us``.

    The store decided at some time between the two. So the slot begins no earlier than the store says, and ends no later.
    """
    delay_us = round(decision.delay * SECOND_US)
    states = decision.states
    if len(states) == 1 and type(states[0].quota) is TokenBucket:
        return Slot(now_us + delay_us, now_us + delay_us + LATE_US, decision, missed)
    times: Sequence[float] | repeat[float] = decision.times_us or repeat(decision.now_us)
    good_us = min([_good_for_us(state.quota, at_us + delay_us) for state, at_us in zip(states, times)])
    return Slot(now_us + delay_us, asked_us + delay_us + good_us, decision, missed)


def _good_for_us(quota: Quota, slot_us: float) -> float:
    """Microseconds from a slot to the end of the window, or of the part of it, in which it is counted."""
    if isinstance(quota, TokenBucket):
        return LATE_US
    window_us = quota.period_us if isinstance(quota, FixedWindow) else quota.part_us
    return window_us - slot_us % window_us - 1.0
