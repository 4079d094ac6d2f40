"""A booked slot: when it comes, and how long it stays good."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import final

from ...algorithms import Booking, decision_of_booking
from ...decision import Decision, Take
from ...quotas import SECOND_US, FixedWindow, Quota, TokenBucket

LATE_US = 100_000.0
"""How long a slot of a token bucket stays good: a caller that wakes later (the machine was asleep) has missed it."""


@final
@dataclass(slots=True)
class Slot:
    """A slot from ``at_us`` to ``until_us`` on the local clock, and the decision that booked it, or its raw booking.

    ``since_us`` is when the store had answered, ``ahead_us`` is its time minus that of the local clock, and ``missed``
    is the number of missed slots that this one replaces.
    """

    since_us: float
    at_us: float
    until_us: float
    take: Take | None
    booked: Decision | Booking
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
    def decision(self) -> Decision:
        """The decision that booked it, the same one each time."""
        booked = self.booked
        if type(booked) is tuple and self.take is not None:
            booked = self.booked = decision_of_booking(self.take, booked)
        assert isinstance(booked, Decision)
        return booked

    @property
    def repeats(self) -> bool:
        """Whether another caller has booked it under the same operation, so that this caller must not give it back."""
        return isinstance(self.booked, Decision) and self.booked.repeated_us is not None

    @property
    def is_plain(self) -> bool:
        """Whether a store in this process has booked it, for one charge of a plain bucket."""
        return type(self.booked) is tuple

    @property
    def is_at_once(self) -> bool:
        """Whether the store, which was not out, let its caller go at once."""
        booked = self.booked
        if isinstance(booked, tuple):
            return not booked[0]
        return not (booked.delay or booked.degraded)


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
    ends no later. A condition, which costs nothing, has no slots.
    """
    if decision.repeated_us is not None:
        return _slot_of_repeated(decision, decision.repeated_us, sent_us, now_us)
    delay_us, ahead_us = round(decision.delay * SECOND_US), decision.now_us - now_us
    at_us, states = now_us + delay_us, decision.states
    if len(states) == 1 and type(states[0].quota) is TokenBucket:
        return Slot(now_us, at_us, at_us + LATE_US, decision.take, decision, ahead_us, missed)
    ends_us = _ends_us(decision, at_us, sent_us + delay_us)
    return Slot(now_us, at_us, min(ends_us, default=at_us + LATE_US), decision.take, decision, ahead_us, missed)


def _ends_us(decision: Decision, at_us: float, earliest_us: float) -> Iterator[float]:
    """When a slot ends by each quota that is charged; in the store, it may have begun at ``earliest_us``."""
    costs: Iterable[float] = repeat(1.0) if decision.take is None else [each.cost for each in decision.take.charges]
    times: Iterable[float] = decision.times_us or repeat(decision.now_us)
    for state, cost, store_us in zip(decision.states, costs, times):
        if cost and isinstance(state.quota, TokenBucket):
            yield at_us + LATE_US
        elif cost:
            yield earliest_us + _good_for_us(state.quota, store_us + round(decision.delay * SECOND_US))


def _slot_of_repeated(decision: Decision, repeated_us: float, sent_us: float, now_us: float) -> Slot:
    """The slot of a decision that was repeated at the store's time ``repeated_us``, when some of its delay was over.

    A slot that had come by then is never missed, because its caller has not waited for it.
    """
    slot, over_us = slot_of(replace(decision, repeated_us=None), sent_us, now_us), repeated_us - decision.now_us
    slot.booked, slot.ahead_us = decision, repeated_us - now_us
    if slot.at_us - over_us <= now_us:
        slot.at_us, slot.until_us = now_us, math.inf
    elif over_us > 0.0:
        slot.at_us -= over_us
        slot.until_us -= over_us
    return slot


def slot_of_booking(take: Take, booking: Booking, now_us: float) -> Slot:
    """The slot of a booking that was only just made, at ``now_us``."""
    at_us = now_us + booking[0]
    return Slot(now_us, at_us, at_us + LATE_US, take, booking, booking[1][3] - now_us)


def _good_for_us(quota: Quota, slot_us: float) -> float:
    """Microseconds from a slot until it is missed: a slot of a window is good until its window ends."""
    if isinstance(quota, FixedWindow):
        return quota.period_us - slot_us % quota.period_us - 1.0
    return quota.period_us
