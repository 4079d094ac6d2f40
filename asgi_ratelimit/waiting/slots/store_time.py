"""The time of a remote store, as far as its answers show it."""

from __future__ import annotations

import math

VALID_US = 10_000_000.0
"""An answer counts for at least this long, and at most twice as long: clocks drift."""

ROUNDING_US = 2.0
"""Times are rounded to less than this."""


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
