"""How the units of a bucket come back: one by one, or all at the end of a window.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...headers import ServerLimit

SERVED_BETWEEN = 100
"""Requests that must be served between two refusals of a bucket with a small burst, or it no longer counts as one."""

MAX_MISSES = 3
"""So many answers that leave less each time end the trial of a small burst."""


class Rate(NamedTuple):
    """How all processes charge a bucket in their store: ``limit`` units in ``period`` seconds.

    With ``refills``, units come back one by one; otherwise all at the end of a window. ``burst`` units are available at
    once, or the whole limit if it is 0.
    """

    limit: float
    period: float
    refills: bool
    burst: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class SmallBurst:
    """Whether fewer units than the limit are available at once, and come back one by one.

    Answers say only in whole seconds when there is more: with a policy of ``20;w=1``, that may really be every 50 ms.

    * ``"trial"``: an answer leaves fewer units than the policy says: the bucket has a small burst, or others use it.
      One request at a time goes, as soon as one unit should be back.
    * ``"refill"``: a request was served, and has left as many as the one before it: units come back one by one.
    * ``"refused"``: a request was refused. As long as the policy stays, nothing more is tried.
    * ``"window"``: the whole limit is available at once, or each answer leaves less. So is an unknown bucket.
    """

    stage: Literal["trial", "refill", "refused", "window"] = "window"
    policy: tuple[float, float] | None = None
    """The limit, and the window in seconds."""
    most: float = -1.0
    """The most units that an answer has left."""
    last: float = math.inf
    """The units that the last answer has left, if no other request was under way."""
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

    def learn(self, limit: float, report: ServerLimit, *, is_alone: bool, is_shared: bool = False) -> None:
        """Learn from a request that was served: its policy, the units left, and when there is more.

        ``is_alone`` says that no other request of this process is under way. If other processes use the bucket, what
        is left shows little, and some served requests are enough.
        """
        left, window = report.remaining or 0.0, report.window or 0.0
        if self.policy != (limit, window):
            self.policy, self.stage, self.most, self.last = (limit, window), "trial", -1.0, math.inf
            self.served = self.misses = 0
        self.served += 1
        self.most = max(self.most, left)
        if left + 1.0 >= limit or (report.reset_after or 0.0) > math.ceil(window / limit):
            self.stage = "window"  # nothing is gained, or one unit would come back earlier
        elif self.stage == "trial" and is_alone:
            self.misses += left < self.last < math.inf
            if left == self.last or (is_shared and self.served > MAX_MISSES):
                self.stage = "refill"
            elif self.misses >= MAX_MISSES:
                self.stage = "window"
        self.last = left if is_alone else math.inf

    def refuse(self) -> None:
        """Note that a request was refused."""
        if self.refills and self.served < SERVED_BETWEEN:
            self.stage = "refused"
        self.served = 0

    def adopt(self, limit: float, rate: Rate) -> None:
        """Go on with what another process has learned."""
        self.policy = limit, rate.period
        self.most = max(self.most, (rate.burst or limit) - 1.0)
        if not rate.burst:
            self.stage = "window"
        elif self.stage != "refused":
            self.stage = "refill" if rate.refills else "refused"
