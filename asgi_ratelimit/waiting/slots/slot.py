"""A booked slot: when it comes, and how long it stays good."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from ...decision import Decision, Take
from ...quotas import FixedWindow, Quota, TokenBucket

LATE_US = 100_000.0
"""How long a slot of a token bucket stays good: a caller that wakes later (the machine was asleep) has missed it."""


@final
@dataclass(slots=True)
class Slot:
    """A slot from ``at_us`` to ``until_us`` on the local clock, and the decision that booked it.

    ``since_us`` is when the store had answered, ``ahead_us`` is its time minus that of the local clock, and ``missed``
    is the number of missed slots that this one replaces.
    """

    since_us: float
    at_us: float
    until_us: float
    decision: Decision
    ahead_us: float
    missed: int = 0

    def move_up(self, ahead_us: float) -> None:
        """Begin earlier if the store's time is ahead of the local one by more than was known, ``ahead_us``."""
        if ahead_us > self.ahead_us:
            self.at_us -= ahead_us - self.ahead_us
            self.ahead_us = ahead_us

    def put_off(self, later_us: float) -> None:
        """Begin and end later, unless its caller can go at once."""
        if self.at_us > self.since_us:
            self.at_us += later_us
            self.until_us += later_us

    @property
    def take(self) -> Take:
        """The take that booked it."""
        return self.decision.take

    @property
    def repeats(self) -> bool:
        """Whether another caller has booked it under the same operation, so that this caller must not give it back."""
        return self.decision.repeated


def distance_of_slots(take: Take) -> float:
    """The microseconds between two slots of evenly spaced calls; 0 for all others."""
    charge, *others = take.charges
    quota = charge.quota
    if type(quota) is not TokenBucket or quota.burst > charge.cost or any(other.cost for other in others):
        return 0.0
    return charge.cost * quota.period_us / quota.limit


def slot_of(decision: Decision, sent_us: float, now_us: float, missed: int = 0) -> Slot:
    """The slot of a decision that came at ``now_us``; its take was sent to the store at ``sent_us``.

    The store decided at some time between the two. So the slot begins no earlier than in the store, and one of a window
    ends no later. A condition, which costs nothing, has no slots. Of a decision that is repeated, some of the wait may
    be over; a slot that has come by then is never missed, because its caller has not waited for it.
    """
    wait_us = decision.wait_us
    asked_us = decision.asked_us if decision.repeated else decision.now_us
    at_us, ahead_us = now_us + wait_us - (asked_us - decision.now_us), asked_us - now_us
    if decision.repeated and at_us <= now_us:
        return Slot(now_us, now_us, math.inf, decision, ahead_us, missed)
    ends_us = min(_ends_us(decision, at_us, at_us - (now_us - sent_us)), default=at_us + LATE_US)
    return Slot(now_us, at_us, ends_us, decision, ahead_us, missed)


def _ends_us(decision: Decision, at_us: float, earliest_us: float) -> Iterator[float]:
    """When a slot ends by each quota that is charged; in the store, it may have begun at ``earliest_us``."""
    for charge in decision.take.charges:
        if charge.cost and isinstance(charge.quota, TokenBucket):
            yield at_us + LATE_US
        elif charge.cost:
            yield earliest_us + _good_for_us(charge.quota, decision.now_us + decision.wait_us)


def _good_for_us(quota: Quota, slot_us: float) -> float:
    """Microseconds from a slot until it is missed: a slot of a window is good until its window ends."""
    if isinstance(quota, FixedWindow):
        return quota.period_us - slot_us % quota.period_us - 1.0
    return quota.period_us
