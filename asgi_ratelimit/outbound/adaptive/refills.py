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

    * ``"refill"``: no answer has left as many units as the policy says, so units are assumed to come back one by one.
      It may also be a window of which others use a part.
    * ``"refused"``: that was wrong, because a request was refused. As long as the policy stays, it is a window.
    * ``"window"``: the whole limit is available at once, and nothing is gained. So is an unknown bucket.
    """

    stage: Literal["refill", "refused", "window"] = "window"
    policy: tuple[float, float] | None = None
    """The limit, and the window in seconds."""
    most: float = -1.0
    """The most units that an answer has left."""
    served: int = 0
    """How many requests were served since the last refusal."""

    @property
    def refills(self) -> bool:
        """Whether units come back one by one."""
        return self.stage == "refill"

    @property
    def room(self) -> float:
        """The most units that are available at once."""
        return self.most + 1.0

    def learn(self, limit: float, report: ServerLimit) -> None:
        """Learn from a request that was served: its policy, the units left, and when there is more."""
        window = report.window or 0.0
        if self.policy != (limit, window):
            self.policy, self.stage, self.most, self.served = (limit, window), "refill", -1.0, 0
        self.served += 1
        self.most = max(self.most, report.remaining or 0.0)
        if self.room >= limit or (report.reset_after or 0.0) > math.ceil(window / limit):
            self.stage = "window"  # nothing is gained, or one unit would come back earlier

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
