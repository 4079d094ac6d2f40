"""How the units of a bucket come back: one by one, or all at the end of a window.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ...quotas import SECOND_US

MOST_EVIDENCE = 5.0
"""How many units of evidence for one kind of reset are kept; so one late answer does not change what was learned."""

MUCH_USED = 3
"""When so many units are used, the time until a bucket is full shows whether they come back one by one."""


class Rate(NamedTuple):
    """How much there is of a bucket, in numbers that all processes agree on: ``limit`` units in ``period`` seconds.

    With ``refills``, units come back one by one; otherwise all at the end of a window. Until answers have shown which
    of them it is, the rate is not ``is_sure``.
    """

    limit: float
    period: float
    refills: bool
    is_sure: bool = True


@dataclass(slots=True, eq=False, repr=False)
class Resets:
    """What answers suggest that say when a bucket is full. Where that time does not grow with what is used, all units
    come back at once.

    ``unit_us`` is the longest time in which a unit has come back, if they do so one by one. ``window_evidence`` is
    above 0 if answers suggest that they do not.
    """

    unit_us: float = 0.0
    window_evidence: float = 0.0
    last_full: tuple[float, float] = (math.inf, math.inf)
    """What the last answer reported, at ``last_full_us``: units that are left, and when the bucket is full."""
    last_full_us: float = 0.0

    @property
    def is_sure(self) -> bool:
        """Whether it is known that units come back one by one, if that is what is believed."""
        return self.window_evidence < 0.0 or not self.unit_us

    def refill(self, limit: float, used: float, full_after_us: float, now_us: float) -> float:
        """The units that come back each microsecond, where ``used`` ones are back after so long; 0 for a window."""
        left, full_at_us = limit - used, now_us + full_after_us
        fewer, later_us = self.last_full[0] - left, full_at_us - self.last_full[1]
        evidence = self.window_evidence
        has_been_full = not (self.unit_us and now_us < self.last_full[1] < math.inf)
        if fewer >= 1 and not has_been_full:
            evidence += fewer if abs(later_us) < fewer * self.unit_us / 2 else -fewer
        elif self.unit_us and -fewer > MUCH_USED + 2 * (now_us - self.last_full_us) / self.unit_us:
            evidence += MOST_EVIDENCE  # more units have come back than could have one by one
        if full_after_us < (used - 1) * self.unit_us * 0.9:
            evidence += 1
        elif used >= MUCH_USED and not has_been_full:
            evidence -= 1
        self.window_evidence = min(max(evidence, -MOST_EVIDENCE), MOST_EVIDENCE)
        self.last_full, self.last_full_us = (left, full_at_us), now_us
        self.unit_us = max(self.unit_us, full_after_us / used)
        return 0.0 if self.window_evidence > 0.0 else 1.0 / self.unit_us

    def adopt(self, rate: Rate) -> None:
        """Go on with what another process has learned."""
        if rate.refills:
            self.window_evidence = -MOST_EVIDENCE if rate.is_sure else 0.0
            self.unit_us = max(self.unit_us, rate.period / rate.limit * SECOND_US)
        else:
            self.window_evidence = MOST_EVIDENCE
