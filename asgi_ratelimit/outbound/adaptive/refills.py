"""How the units of a bucket come back: one by one, or all at the end of a window.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...headers import ServerLimit
from ...quotas import SECOND_US

MOST_EVIDENCE = 5.0
"""The most units of evidence for one kind of reset, so that one late answer does not change what was learned."""

MUCH_USED = 3
"""With at least this many units used, the time until a bucket is full shows whether they come back one by one."""

SERVED_BETWEEN = 100
"""Requests that must be served between two refusals of a bucket with a small burst, or it no longer counts as one."""

MAX_MISSES = 3
"""So many answers that leave less each time end the trial of a small burst."""

EQUAL = 0.05
"""Periods that differ by no more than this part of them are the same."""


class Rate(NamedTuple):
    """The size of a bucket, in numbers that all processes agree on: ``limit`` units in ``period`` seconds.

    With ``refills``, units come back one by one; otherwise all at the end of a window. ``is_sure`` is false until
    answers have shown which of the two it is. ``burst`` units are available at once, or the whole limit if it is 0.
    """

    limit: float
    period: float
    refills: bool
    is_sure: bool = True
    burst: float = 0.0

    @property
    def is_tiny(self) -> bool:
        """Whether the burst is so small that it bears no request that comes late."""
        return 0.0 < self.burst < 2.0

    def covers(self, other: Rate) -> bool:
        """Whether this rate is at least as certain as another one, and admits no more."""
        if self.limit != other.limit or self.is_sure < other.is_sure:
            return False
        if self.is_sure and not other.is_sure:
            return True
        is_refused = self.burst > 0.0 and not self.refills
        is_alike = is_refused or (self.refills == other.refills and self.burst == other.burst)
        return is_alike and self.period >= other.period * (1.0 - EQUAL)


@dataclass(slots=True, eq=False, repr=False)
class Resets:
    """Whether units come back one by one or all at once, judged by answers that say when a bucket is full.

    If that time does not grow with the units used, all units come back at once. ``unit_us`` is the longest time in
    which a unit has come back, if units come back one by one. ``window_evidence`` is above 0 if answers suggest that
    they do not.
    """

    unit_us: float = 0.0
    window_evidence: float = 0.0
    last_full: tuple[float, float] = (math.inf, math.inf)
    """What the last answer reported: the units left, and when the bucket is full."""
    seen: tuple[float, float] = (math.inf, 0.0)
    """The units that an answer has left, and when it came. Requests that were under way then may have been counted
    earlier than its own, so only one that was sent later is compared with it, and is the next one that is seen."""

    @property
    def is_sure(self) -> bool:
        """Whether it is certain that units come back one by one, as long as that is the assumption."""
        return self.window_evidence < 0.0 or not self.unit_us

    def refill(self, limit: float, used: float, full_after_us: float, now_us: float, sent_us: float) -> float:
        """The units that come back each microsecond, if ``used`` are back after ``full_after_us``; 0 for a window.

        The request was sent at ``sent_us``, and its answer came at ``now_us``.
        """
        left, full_at_us = limit - used, now_us + full_after_us
        fewer, later_us = self.last_full[0] - left, full_at_us - self.last_full[1]
        evidence = self.window_evidence
        has_been_full = not (self.unit_us and now_us < self.last_full[1] < math.inf)
        if fewer >= 1 and not has_been_full:
            evidence += fewer if abs(later_us) < fewer * self.unit_us / 2 else -fewer
        elif self._is_renewed(left, sent_us, now_us):
            evidence += MOST_EVIDENCE
        if full_after_us < (used - 1) * self.unit_us * 0.9:
            evidence += 1
        elif used >= MUCH_USED and not has_been_full:
            evidence -= 1
        self.window_evidence = min(max(evidence, -MOST_EVIDENCE), MOST_EVIDENCE)
        self.last_full = left, full_at_us
        if sent_us >= self.seen[1]:
            self.seen = left, now_us
        self.unit_us = max(self.unit_us, full_after_us / used)
        return 0.0 if self.window_evidence > 0.0 else 1.0 / self.unit_us

    def _is_renewed(self, left: float, sent_us: float, now_us: float) -> bool:
        """Whether more units have come back since the answer that was seen than could have one by one."""
        seen_left, seen_us = self.seen
        if not self.unit_us or sent_us < seen_us:
            return False
        return left - seen_left > MUCH_USED + 2 * (now_us - seen_us) / self.unit_us


@dataclass(slots=True, eq=False, repr=False)
class SmallBurst:
    """Whether fewer units than the limit are available at once, and come back one by one.

    Answers say only in whole seconds when there is more: with a policy of ``20;w=1``, that may really be every 50 ms.

    * ``"trial"``: an answer leaves fewer units than the policy says: the bucket has a small burst, or others use it.
      One request at a time goes, as soon as one unit should be back.
    * ``"refill"``: a request was served, and has left no less than the one before it: units come back one by one.
    * ``"refused"``: a request was refused. As long as the policy stays, nothing more is tried.
    * ``"window"``: an answer does not fit, or the whole limit is available at once. So is an unknown bucket.
    """

    stage: Literal["trial", "refill", "refused", "window"] = "window"
    policy: tuple[float, float] | None = None
    most: float = -1.0
    """The most units that an answer has left."""
    last: tuple[float, float] = (math.inf, 0.0)
    """The units that the last answer has left, if no other request was under way, and when the answer came."""
    served: int = 0
    """How many requests were served since the last refusal."""
    misses: int = 0
    """How many answers of the trial have left less than the one before them."""

    @property
    def refills(self) -> bool:
        """Whether units come back one by one, or are on trial to do so."""
        return self.stage in ("trial", "refill")

    @property
    def room(self) -> float:
        """The most units that are available at once; in a trial, only one is assumed."""
        return 1.0 if self.stage == "trial" else self.most + 1.0

    def learn(self, limit: float, report: ServerLimit, is_alone: bool, now_us: float) -> None:
        """Learn from a request that was served: its policy, the units left, and when there is more.

        ``is_alone`` says that no other request is under way.
        """
        left, more_after, window = report.remaining or 0.0, report.reset_after or 0.0, report.window or 0.0
        if self.policy != (limit, window):
            self.policy, self.stage, self.most, self.last = (limit, window), "trial", -1.0, (math.inf, 0.0)
            self.served = self.misses = 0
        self.served += 1
        if left + 1.0 >= limit or more_after > math.ceil(window / limit):
            self.stage = "window"  # nothing is gained, or one unit would come back earlier
        elif self.stage == "trial" and is_alone and now_us < self.last[1] + window * SECOND_US:
            if left == self.last[0]:
                self.stage = "refill"
            self.misses += left < self.last[0] < math.inf
            if self.misses >= MAX_MISSES:
                self.stage = "window"
        self.most = max(self.most, left)
        self.last = left if is_alone else math.inf, now_us

    def refuse(self) -> None:
        """Note that a request was refused."""
        if self.stage == "trial" or (self.stage == "refill" and self.served < SERVED_BETWEEN):
            self.stage = "refused"
        self.served = 0

    def adopt(self, rate: Rate) -> None:
        """Go on with what another process has learned."""
        if self.policy is None:
            self.policy = rate.limit, rate.period
        self.most = max(self.most, rate.burst - 1.0)
        if not rate.burst:
            self.stage = "window"
        elif not rate.refills:
            self.stage = "refused"
        elif self.stage != "refused":
            self.stage = "refill" if rate.is_sure else "trial"
