"""A limit that no answer reports: the search for the rate of a host.

``RateBucket`` is additive increase, multiplicative decrease. Until the first refusal, the rate doubles every second.
After a refusal, the search remembers the largest rate that worked. The rate falls to a part of it, and rises to it
again in ten seconds or more, slowly near it, and beyond it faster and faster, as in CUBIC (RFC 9438). Before that rate
is tried again, served requests must pay for each refusal, so that only a small part of all requests is refused. Only
requests that come as fast as the rate allows make it rise.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ...profiles import HiddenRate
from ...quotas import SECOND_US
from .learned_buckets import Bucket

# The part of the best rate that is left after a refusal.
DECREASE = 0.85

# The least time until the best rate is tried again. After a refusal that asked for a pause, it is ``PAUSE_SHARE``
# times the pause, but at most ``MOST_RECOVERY_US``.
RECOVERY_US, MOST_RECOVERY_US = 10 * SECOND_US, 60 * SECOND_US

PAUSE_SHARE = 20

# Requests that must be served for each refused one before the best rate is tried again.
SERVED_FOR_REFUSED = 60

# The requests of the best rate in this many seconds are enough, however many were refused.
LONGEST_RECOVERY_S = 300

# While fewer requests were served since the last refusal, or for less time, they say little about the rate.
LEAST_SERVED, LEAST_US = 20, 1 * SECOND_US

# The rate that the server could have served is assumed to be this many times the served one.
HOPE = 1.05

# A request that leaves late by up to this time does not delay the next one. Nor does one that waited and was woken
# late, by up to the time between two requests.
LATE_US = 2_000.0

# The number of gaps between requests in the average, the longest gap that counts, and the largest average at which
# the rate is assumed to hold requests up: at least half of the rate is used.
GAPS, LONGEST_GAP, MOST_GAPS = 4, 8.0, 2.0

# The time of the last request before any was sent.
NEVER_US = -1e15


class RateBucket(Bucket):
    """Spaces requests evenly, at the rate that the search has reached: ``limit`` requests a second.

    It learns from which requests are served and which refused, and when, not from what answers report. An ``epoch``
    begins whenever a refusal lowers the rate.
    """

    # How often a refusal has lowered the limit since a request was served. If that is more than once, the server seems
    # to refuse everything, so that requests have to stop for a while.
    in_a_row = 0

    def __init__(self, bounds: HiddenRate) -> None:
        super().__init__("hidden rate", float(bounds.floor if bounds.start is None else bounds.start))
        self._floor, self._ceiling = float(bounds.floor), float(bounds.ceiling)
        self._last_us = NEVER_US
        # The moving average of the time between two requests, as a multiple of the interval of the rate.
        self._gaps = 0.0
        self._best = math.inf
        self._low = self.limit
        self._refused = 0
        # The requests that were served since the limit was lowered, their time, and the time until the best is tried.
        self._done, self._recovered_us, self._recovery_us = 0, 0.0, RECOVERY_US
        # The requests that were served since the last refusal, and the time that they took.
        self._served, self._served_us = 0, 0.0
        self._updated_us = math.inf

    def ready_at(self, now_us: float) -> float:
        return max(now_us, math.ceil(self._last_us + SECOND_US / self.limit))

    def admit(self, now_us: float) -> int:
        interval_us = SECOND_US / self.limit
        passed_us = now_us - self._last_us
        self._gaps += (min(passed_us / interval_us, LONGEST_GAP) - self._gaps) / GAPS
        late_us = max(passed_us - interval_us, 0.0)
        self._last_us = now_us - min(late_us, interval_us if self.is_awaited else LATE_US)
        self.is_awaited = False
        return super().admit(now_us)

    def serve(self, now_us: float) -> None:
        """Note that a request was served; if a higher rate would have sent more requests, the rate rises."""
        passed_us = min(max(now_us - self._updated_us, 0.0), max(SECOND_US, 2 * SECOND_US / self.limit))
        self._updated_us = now_us
        self.in_a_row = 0
        self._served += 1
        self._served_us += passed_us
        if self._gaps > MOST_GAPS:
            return
        if self._best == math.inf:
            self._move_to(self.limit * 2.0 ** min(passed_us / SECOND_US, 1.0))
            return
        self._done += 1
        self._recovered_us += passed_us
        if self._done < self._needed:
            self._recovered_us = min(self._recovered_us, self._recovery_us * self._done / self._needed)
        progress = self._recovered_us / self._recovery_us
        self._move_to(self._best - (self._best - self._low) * (1.0 - progress) ** 3)

    def refuse(self, epoch: int, wait_us: float, now_us: float) -> bool:
        """Note that a request was refused, and that the server asks for a pause of ``wait_us``.

        Returns whether the rate is lowered: only the first refusal of an epoch lowers it.
        """
        self._refused += 1
        if epoch != self.epoch:
            return False
        self.epoch += 1
        self.in_a_row += 1
        if self.in_a_row > 1 and self._best < math.inf:
            self._low = max(self.limit * DECREASE, self._best / 4, self._floor)
        else:
            self._refused = 1
            self._best = min(max(self._best_rate(wait_us), self._floor), self._ceiling)
            self._low = max(self._best * DECREASE, self._floor)
            self._served, self._served_us = 0, 0.0
        self._done, self._recovered_us, self._updated_us = 0, 0.0, now_us + wait_us
        self._recovery_us = min(max(RECOVERY_US, PAUSE_SHARE * wait_us), MOST_RECOVERY_US)
        self._move_to(self._low)
        return True

    def _best_rate(self, wait_us: float) -> float:
        """The largest rate that worked: the one until now, or the one really served, including the wait it caused."""
        served, time_us = self._served, self._served_us + wait_us
        if served < LEAST_SERVED or time_us < LEAST_US:
            return self.limit
        rate = min(HOPE * served / time_us * SECOND_US, self.limit)
        if self._best < math.inf:
            return rate
        return max(rate, self.limit / 2) if wait_us else self.limit

    @property
    def _needed(self) -> float:
        """Requests that must be served until the best rate is tried again."""
        needed = min(SERVED_FOR_REFUSED * self._refused, LONGEST_RECOVERY_S * self._best)
        return max(needed, SERVED_FOR_REFUSED)

    def _move_to(self, rate: float) -> None:
        self.limit = min(max(rate, self._floor), self._ceiling)
