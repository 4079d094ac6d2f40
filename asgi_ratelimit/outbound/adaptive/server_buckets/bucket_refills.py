"""How the units of a bucket come back: one by one, or all at the end of a window.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ....headers import ServerLimit
from ....quotas import SECOND_US

MOST_EVIDENCE = 5.0
"""The most units of evidence for one kind of reset, so that one late answer does not change what was learned."""

MUCH_USED = 3
"""With at least this many units used, the time until a bucket is full shows whether they come back one by one."""


SERVED_BETWEEN = 100
"""Requests that must be served between two refusals of a bucket with a small burst, or it no longer counts as one."""


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
    """What the last answer, at ``last_full_us``, reported: the units left, and when the bucket is full."""
    last_full_us: float = 0.0
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
        self.last_full, self.last_full_us = (left, full_at_us), now_us
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

    def adopt(self, rate: Rate) -> None:
        """Go on with what another process has learned."""
        if rate.refills:
            self.window_evidence = -MOST_EVIDENCE if rate.is_sure else 0.0
            self.unit_us = max(self.unit_us, rate.period / rate.limit * SECOND_US)
        else:
            self.window_evidence = MOST_EVIDENCE


@dataclass(slots=True, eq=False, repr=False)
class SmallBurst:
    """Whether fewer units than the limit are available at once, and come back one by one.

    Answers say only in whole seconds when there is more: with a policy of ``20;w=1``, that may really be every 50 ms.

    * ``"unknown"``: at first. When nothing is left, the next request goes when answers say that there is more.
    * ``"trial"``: as many units were available again as ever, and fewer than the limit. The bucket was full, or others
      leave as much in each window. One request at a time goes, as soon as one unit should be back.
    * ``"refill"``: a request was served, and has left no less than the one before it: units come back one by one.
    * ``"refused"``: a request was refused. As long as the policy stays, nothing more is tried.
    * ``"window"``: an answer does not fit, or the whole limit is available at once.
    """

    stage: Literal["unknown", "trial", "refill", "refused", "window"] = "unknown"
    policy: tuple[float, float] | None = None
    most: float = -1.0
    """The most units that an answer has left."""
    was_less: bool = False
    """Whether the last answer has left less than ``most``."""
    last: tuple[float, float] = (math.inf, 0.0)
    """The units that the last answer has left, if no other request was under way, and when the answer came."""
    more_us: float = math.inf
    """When there is more, according to the last answer."""
    served: int = 0
    """How many requests were served since the last refusal."""

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
        if self.policy not in (None, (limit, window)):
            self.stage, self.most = "unknown", -1.0
        self.policy = limit, window
        self.served += 1
        if left + 1.0 >= limit or more_after > math.ceil(window / limit):
            self.stage = "window"  # nothing is gained, or one unit would come back earlier
        elif self.stage == "unknown" and left == self.most and (self.was_less or now_us >= self.more_us):
            self.stage, self.served = "trial", 0
        elif self.stage == "trial" and left > self.most:
            self.stage = "unknown"  # it was not full, or a window has begun
        elif self.stage == "trial" and is_alone and now_us < self.last[1] + window * SECOND_US and self._is_back(left):
            self.stage = "refill"
        self.was_less, self.most = left < self.most, max(self.most, left)
        self.last, self.more_us = (left if is_alone else math.inf, now_us), now_us + more_after * SECOND_US

    def _is_back(self, left: float) -> bool:
        """Whether a unit has come back since the last answer, but not all of them, as when a window begins."""
        return left >= self.last[0] and (left < self.most or not self.was_less)

    def refuse(self) -> None:
        """Note that a request was refused."""
        if self.stage == "trial" or (self.stage == "refill" and self.served < SERVED_BETWEEN):
            self.stage = "refused"
        self.served = 0

    def adopt(self, rate: Rate) -> None:
        """Go on with what another process has learned."""
        self.most = max(self.most, rate.burst - 1.0)
        if rate.is_sure and not rate.refills and self.stage != "window":
            self.stage = "refused" if rate.burst else "window"
        elif rate.burst and rate.refills and self.stage in ("unknown", "trial"):
            self.stage, self.last = "refill" if rate.is_sure else "trial", (math.inf, 0.0)
