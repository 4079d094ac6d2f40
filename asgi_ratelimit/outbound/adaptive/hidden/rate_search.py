"""Finds the rate above which a server refuses, by its answers: additive increase, multiplicative decrease.

Until the first refusal, the rate doubles every second. After a refusal, the search remembers the largest rate that
worked. The rate falls to a part of it, and rises to it again in ten seconds or more, slowly near it, and beyond it
faster and faster, as in CUBIC (RFC 9438). Before that rate is tried again, served requests must pay for each refusal,
so that only a small part of all requests is refused. Only requests that come as fast as the rate allows make it rise.

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
times the pause, but at most ``MOST_RECOVERY_US``."""

PAUSE_SHARE = 20

SERVED_FOR_REFUSED = 60
"""Requests that must be served for each refused one before the best rate is tried again."""

LONGEST_RECOVERY_S = 300
"""The requests of the best rate in this many seconds are enough, however many were refused."""

LEAST_SERVED, LEAST_US = 20, 1 * SECOND_US
"""While fewer requests were served since the last refusal, or for less time, they say little about the rate."""

FAR_OFF = 0.5
"""If the best rate falls below this part of itself, it was not known yet, and refusals need not be paid for."""

HOPE = 1.05
"""The rate that the server could have served is assumed to be this many times the served one."""


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
        self._needed = 1.0
        """Requests that must be served until the best rate is tried again."""
        self._done, self._recovered_us, self._recovery_us = 0, 0.0, RECOVERY_US
        self._served, self._served_us = 0, 0.0
        """The requests that were served since the last refusal, and the time that they took."""
        self._served_before, self._served_before_us = 0, 0.0
        """The same before the first refusal of the latest series of refusals."""
        self._first_refused_us, self._refused_us = 0.0, 0.0
        """When the first and the last refusal of that series came."""
        self._updated_us: float | None = None

    def served(self, now_us: float, *, is_limited: bool) -> None:
        """Note that a request was served; ``is_limited`` says that a higher rate would have sent more requests."""
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
        self._done += 1
        self._recovered_us += passed_us
        if self._done < self._needed:
            self._recovered_us = min(self._recovered_us, self._recovery_us * self._done / self._needed)
        progress = self._recovered_us / self._recovery_us
        self._move_to(self._best - (self._best - self._low) * (1.0 - progress) ** 3)

    def refused(self, epoch: int, wait_us: float, now_us: float) -> bool:
        """Note that a request of this epoch was refused, and that the server asks for a pause of ``wait_us``.

        Returns whether the rate is lowered: only the first refusal of an epoch lowers it.
        """
        self._refused += 1
        self._refused_us = now_us
        if epoch != self.epoch:
            self._set_needed()
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
        self._set_needed()
        self._done, self._recovered_us, self._updated_us = 0, 0.0, now_us + wait_us
        self._recovery_us = min(max(RECOVERY_US, PAUSE_SHARE * wait_us), MOST_RECOVERY_US)
        self._move_to(self._low)
        return True

    def _best_rate(self, wait_us: float) -> float:
        """The largest rate that worked: the one until now, or the one really served, including the wait it caused."""
        served, time_us = self._served, self._served_us + wait_us
        if served < LEAST_SERVED or time_us < LEAST_US:
            return self.rate
        rate = min(HOPE * served / time_us * SECOND_US, self.rate)
        if self._best < math.inf:
            return rate
        return max(rate, self.rate / 2) if wait_us else self.rate

    def _learn_window(self, now_us: float) -> None:
        """Count the time in which the server refused everything, now that it serves again.

        So if a server counts in long windows, the best rate is what it serves in a whole window. It may have begun to
        serve at any time after the last refusal.
        """
        blocked_us = (self._refused_us + now_us) / 2.0 - self._first_refused_us
        best = HOPE * self._served_before / (self._served_before_us + blocked_us) * SECOND_US
        if self._served_before >= LEAST_SERVED and best < self._best:
            if best < FAR_OFF * self._best:
                self._refused = 1
            self._best = max(best, self._floor)
            self._low = max(self._best * DECREASE, self._floor)
            self._set_needed()
            self._move_to(self._low)

    def _set_needed(self) -> None:
        needed = min(SERVED_FOR_REFUSED * self._refused, LONGEST_RECOVERY_S * self._best)
        self._needed = max(needed, SERVED_FOR_REFUSED)

    def _move_to(self, rate: float) -> None:
        self.rate = min(max(rate, self._floor), self._ceiling)
