"""A booked slot: when it comes, by the time of its store, how long it stays good, and when it was missed."""

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


MOST_MISSED = 3
"""How often in a row a caller of a remote store may miss its slot and book a new one; the last slot never ends.

Otherwise, a caller of a store that takes longer to answer than a window lasts would book forever.
"""

SLACK_US = 2_000.0
"""A call may use a slot this late, or by a tenth of the distance of slots, although another process has the next."""

WIDE_US = 8_000.0
"""Slots at a smaller distance are always used, because calls are often late by a part of it."""


def is_missed(slot: Slot, now_us: float) -> bool:
    """Whether the time of a slot is over."""
    return now_us > slot.until_us and slot.missed < MOST_MISSED


def is_too_late(slot: Slot, following: Slot | None, take: Take, now_us: float) -> bool:
    """Whether a call would leave too close to the next of the evenly spaced slots that several processes share.

    That matters if a margin is left for a service that counts strictly. ``following`` is the next slot of this process.
    If it comes directly after this one, calls of this process keep their distance anyway, and a slot is too late only
    when the following slot has come as well.
    """
    late_us = now_us - slot.at_us
    if late_us <= SLACK_US or slot.missed >= MOST_MISSED:
        return False
    distance_us = distance_of_slots(take)
    if distance_us < WIDE_US or late_us <= distance_us / 10.0:
        return False
    is_followed = following is not None and following.at_us - slot.at_us < 1.5 * distance_us
    return late_us >= distance_us if is_followed else True


VALID_US = 10_000_000.0
"""An answer counts for at least this long, and at most twice as long: clocks drift."""

ROUNDING_US = 2.0
"""Times are rounded to less than this."""

LONGEST_LEAD_US = 500_000.0
"""How long before its slot a call asks the store, at most. A store that takes longer delays the call."""

FORGOTTEN = 1 / 32
"""The part of an answer time that is above the latest one, and is forgotten."""


class StoreTime:
    """By how much the time of a store is ahead of the local one.

    Answers come late, each by a different time, but never early. So the largest difference of several is the closest to
    the true one, and never above it.
    """

    __slots__ = ("_earlier_us", "_latest_us", "_since_us")

    def __init__(self) -> None:
        self._earlier_us = self._latest_us = -math.inf
        self._since_us = -math.inf

    def ahead_us(self, store_us: float, sent_us: float, now_us: float) -> float:
        """The difference by all recent answers. The newest says ``store_us``; its take was sent at ``sent_us``."""
        if now_us - self._since_us > VALID_US:
            self._earlier_us, self._latest_us, self._since_us = self._latest_us, -math.inf, now_us
        if max(self._earlier_us, self._latest_us) > store_us - sent_us + ROUNDING_US:  # a clock was set
            self._earlier_us = self._latest_us = -math.inf
        self._latest_us = max(self._latest_us, store_us - now_us)
        return max(self._earlier_us, self._latest_us)


def lead_us(last_us: float, answer_us: float) -> float:
    """How long before its slot a call asks the store, so that the answer is there when the slot comes.

    ``last_us`` is the result for the answers before, and ``answer_us`` is how long the latest one took. A longer time
    counts at once, and is forgotten step by step: answers come in batches, so every other one takes longer.
    """
    return min(max(answer_us, last_us - (last_us - answer_us) * FORGOTTEN), LONGEST_LEAD_US) // 1.0
