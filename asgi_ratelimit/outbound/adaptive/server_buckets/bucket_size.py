"""The size of a bucket, as answers report it: its limit, what a request costs, and how its units come back.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ....headers import ServerLimit
from ....quotas import SECOND_US
from .bucket_refills import Rate, Resets, SmallBurst

LEAST = 1e-6
"""With fewer units than this, nothing is left."""


@dataclass(slots=True, eq=False, repr=False)
class BucketSize:
    """``limit`` units, of which a request costs ``cost``; it is unlimited until an answer has reported a limit.

    * ``refill`` is the number of units that come back each microsecond; 0 if all come back at the end of a window.
    * ``window_us`` is the length of the longest window that an answer has reported.
    * ``is_next_unit``: answers say when the next unit comes back, and not when all are back.
    """

    limit: float = math.inf
    cost: float = 1.0
    refill: float = 0.0
    window_us: float = 0.0
    is_next_unit: bool = False
    resets: Resets = field(default_factory=Resets)
    small_burst: SmallBurst = field(default_factory=SmallBurst)

    @property
    def least(self) -> float:
        """How many units must be available for a request: its cost, or the limit if that is less."""
        return max(min(self.cost, self.limit), LEAST)

    @property
    def is_limited(self) -> bool:
        """Whether a limit is known, and lets any request go."""
        return LEAST <= self.limit < math.inf

    def learn(self, report: ServerLimit, now_us: float, *, sent_us: float, is_alone: bool, is_refused: bool) -> None:
        """Learn from the answer to a request that was sent at ``sent_us``.

        ``is_alone`` says that no other request is under way, ``is_refused`` that the server has refused this one.
        """
        limit = math.inf if report.limit is None else report.limit
        if limit != self.limit:
            self.refill = self.resets.unit_us = 0.0
        self.limit = limit
        self.cost = report.cost if report.cost is not None else 1.0 if report.unit == "requests" else 0.0
        self.is_next_unit = report.reset_means == "next unit"
        window = report.window or (0.0 if self.is_next_unit else report.reset_after) or 0.0
        self.window_us = max(self.window_us, window * SECOND_US)
        if not self.is_limited:
            return
        if report.refill:
            self.refill = report.refill / SECOND_US
        elif report.reset_means == "full refill" and report.reset_after:
            used = limit - (report.remaining or 0.0)
            if used > 0.0:
                full_after_us = report.reset_after * SECOND_US
                self.refill = self.resets.refill(limit, used, full_after_us, now_us, sent_us)
        elif self.is_next_unit and self.cost == 1.0 and report.window and report.reset_after is not None:
            if not is_refused:
                self.small_burst.learn(limit, report, is_alone, now_us)
            self.refill = limit / report.window / SECOND_US if self.small_burst.refills else 0.0

    def refuse(self) -> None:
        """Note that the server has refused a request: a small burst may have been a wrong assumption."""
        if self.small_burst.refills:
            self.small_burst.refuse()
            self.refill = self.refill if self.small_burst.refills else 0.0

    def adopt(self, limit: float, cost: float) -> None:
        """Go on with the limit that another process has learned."""
        self.limit, self.cost, self.refill, self.resets.unit_us = limit, cost, 0.0, 0.0

    def adopt_rate(self, rate: Rate) -> None:
        """Go on with what another process has learned about how units come back."""
        self.resets.adopt(rate)
        self.small_burst.adopt(rate)
        if not rate.refills:
            self.refill, self.window_us = 0.0, max(self.window_us, rate.period * SECOND_US)
        elif self.small_burst.refills:
            self.refill = rate.limit / rate.period / SECOND_US

    def exact(self, report: ServerLimit) -> float:
        """The units that an answer has left. If they come back one by one, it rounds them down, but not their time."""
        remaining = report.remaining or 0.0
        if not self.refill or report.reset_after is None or report.reset_means != "full refill":
            return remaining
        exact = self.limit - report.reset_after * SECOND_US * self.refill
        return min(max(exact, remaining), remaining + 0.999)
