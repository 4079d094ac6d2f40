"""At which rate a server refuses, by what it serves and refuses: additive increase, multiplicative decrease.

Until the first refusal, the rate doubles every second. After one, the largest rate that worked is remembered; the rate
falls to a part of it, and rises to it again in ten seconds or more, slowly near it, and beyond it faster and faster, as
in CUBIC (RFC 9438). Each refusal must be paid for by requests that are served before that rate is tried again, so that
few of all requests are refused. Only requests that come as fast as the rate allows make it rise.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ....profiles import HiddenRate
from ....quotas import SECOND_US

DECREASE = 0.85
"""The part of the best rate that is left after a refusal."""

RECOVERY_US, MOST_RECOVERY_US = 10 * SECOND_US, 60 * SECOND_US
"""The least time until the best rate is tried again. After a refusal that asked for a pause, it is ``PAUSE_SHARE``
times the pause, up to the latter."""

PAUSE_SHARE = 20

SERVED_FOR_REFUSED = 60
"""Requests to be served for each that was refused, before the best rate is tried again."""

LONGEST_RECOVERY_S = 300
"""As many requests are enough as the best rate has in so many seconds, however many were refused."""

LEAST_SERVED, LEAST_US = 20, 1 * SECOND_US
"""As long as less was served since the last refusal, or for less time, that says little of the rate."""

FAR_OFF = 0.5
"""When the best rate falls to less than this part of it, nothing is known yet: then refusals need not be paid for."""

HOPE = 1.05
"""What was served is taken for so much less than what could have been."""


class RateSearch:
    """A rate in requests a second, never outside its bounds; ``epoch`` counts how often it was lowered."""

    def __init__(self, bounds: HiddenRate) -> None:
        self._floor, self._ceiling = float(bounds.floor), float(bounds.ceiling)
        self.rate = self._floor if bounds.start is None else float(bounds.start)
        self.epoch = 0
        self.in_a_row = 0
        """How often the rate was lowered since a request was served."""
        self._best = math.inf
        self._low = self.rate
        self._refused = 0
        self._due = 1.0
        """Requests to be served until the best rate is tried again."""
        self._paid, self._recovered_us, self._recovery_us = 0, 0.0, RECOVERY_US
        self._served, self._served_us = 0, 0.0
        """What was served since the last refusal, and in how much time."""
        self._served_before, self._served_before_us = 0, 0.0
        """The same before the first refusal of the last row of them."""
        self._first_refused_us, self._refused_us = 0.0, 0.0
        """When the first and the last refusal of that row came."""
        self._updated_us: float | None = None

    def served(self, now_us: float, *, is_limited: bool) -> None:
        """A request was served; it ``is_limited`` if more requests would have been sent at a higher rate."""
        before_us = now_us if self._updated_us is None else self._updated_us
        passed_us = min(max(now_us - before_us, 0.0), max(SECOND_US, 2 * SECOND_US / self.rate))
        self._updated_us = now_us
        if self.in_a_row > 1:
            self._learn_window(now_us)
        self.in_a_row = 0
        self._served += 1
        self._served_us += passed_us
        if not is_limited:
            return
        if self._best == math.inf:
            self._move_to(self.rate * 2.0 ** min(passed_us / SECOND_US, 1.0))
            return
        self._paid += 1
        self._recovered_us += passed_us
        if self._paid < self._due:
            self._recovered_us = min(self._recovered_us, self._recovery_us * self._paid / self._due)
        progress = self._recovered_us / self._recovery_us
        self._move_to(self._best - (self._best - self._low) * (1.0 - progress) ** 3)

    def refused(self, epoch: int, wait_us: float, now_us: float) -> bool:
        """A request of this epoch was refused, and the server wants to be left alone for so long.

        Returns whether the rate is lowered: by the first refusal of an epoch only.
        """
        self._refused += 1
        self._refused_us = now_us
        if epoch != self.epoch:
            self._charge()
            return False
        self.epoch += 1
        is_again = self.in_a_row > 0
        self.in_a_row += 1
        if is_again and self._best < math.inf:
            self._low = max(self.rate * DECREASE, self._best / 4, self._floor)
        else:
            self._refused = 1
            self._best = min(max(self._best_rate(wait_us), self._floor), self._ceiling)
            self._low = max(self._best * DECREASE, self._floor)
            self._served_before, self._served_before_us = self._served, self._served_us
            self._first_refused_us = now_us
            self._served, self._served_us = 0, 0.0
        self._charge()
        self._paid, self._recovered_us, self._updated_us = 0, 0.0, now_us + wait_us
        self._recovery_us = min(max(RECOVERY_US, PAUSE_SHARE * wait_us), MOST_RECOVERY_US)
        self._move_to(self._low)
        return True

    def _best_rate(self, wait_us: float) -> float:
        """The largest rate that worked: the one until now, or what was really served, and the wait that it led to."""
        served, time_us = self._served, self._served_us + wait_us
        if served < LEAST_SERVED or time_us < LEAST_US:
            return self.rate
        rate = min(HOPE * served / time_us * SECOND_US, self.rate)
        if self._best < math.inf:
            return rate
        return max(rate, self.rate / 2) if wait_us else self.rate

    def _learn_window(self, now_us: float) -> None:
        """The server serves again after it has refused everything for a while: that time counts, too.

        So where a server counts in long windows, the best rate is what it serves in the whole of one. It has begun to
        serve at any time after the last refusal.
        """
        blocked_us = (self._refused_us + now_us) / 2.0 - self._first_refused_us
        best = HOPE * self._served_before / (self._served_before_us + blocked_us) * SECOND_US
        if self._served_before >= LEAST_SERVED and best < self._best:
            if best < FAR_OFF * self._best:
                self._refused = 1
            self._best = max(best, self._floor)
            self._low = max(self._best * DECREASE, self._floor)
            self._charge()
            self._move_to(self._low)

    def _charge(self) -> None:
        due = min(SERVED_FOR_REFUSED * self._refused, LONGEST_RECOVERY_S * self._best)
        self._due = max(due, SERVED_FOR_REFUSED)

    def _move_to(self, rate: float) -> None:
        self.rate = min(max(rate, self._floor), self._ceiling)
