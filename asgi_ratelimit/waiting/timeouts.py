"""``PaceTimeout``: what it carries, and what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..decision import Decision, Take
from ..errors import RateLimitError
from ..quota_text import readable
from ..quotas import SECOND_US

OUT = "; the store is out, and this process limits with its share of the quota"


class PaceTimeout(RateLimitError, TimeoutError):
    """Raised when the next free slot is further away than ``max_delay``; nothing is booked.

    ``decision`` is the refusal: its ``retry_after`` says how much longer the caller would have to wait.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message)
        self.decision = decision

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.decision)


def pace_timeout(take: Take, decision: Decision) -> PaceTimeout:
    """The error for a take that was refused with this decision."""
    key = take.charges[0].key
    if decision.degraded and decision.before is None:
        return PaceTimeout(f"no slot for {key!r}: the store is out, and its on_error refuses", decision)
    if decision.retry_after == math.inf:
        return PaceTimeout(
            f"no slot for {key!r}, ever: the cost is above what {readable(decision.quota)} can give", decision
        )
    away = take.max_wait + decision.retry_after
    text = f"the next slot for {key!r} is {away:.6g} s away, max_delay is {take.max_wait:g} s"
    return PaceTimeout(text + (OUT if decision.degraded else ""), decision)


def as_refused(decision: Decision, too_long_us: float) -> Decision:
    """The decision for a caller that would have to wait ``too_long_us`` microseconds longer than it is willing to."""
    return replace(decision, allowed=False, granted=0, delay=0.0, retry_after=max(too_long_us, 0.0) / SECOND_US)
