"""The time of a remote store, and how long it takes to answer, as far as its answers show it."""

from __future__ import annotations

import math

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
