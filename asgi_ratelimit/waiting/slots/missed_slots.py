"""Callers that wake late: whether they may still use their slots, or have missed them, and book new ones."""

from __future__ import annotations

from ...decision import Take
from .slot import Slot, distance_of_slots

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
