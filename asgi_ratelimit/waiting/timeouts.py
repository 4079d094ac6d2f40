"""``PaceTimeout``: what it carries, and what it says."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..buckets import DEFAULT_NAME
from ..decision import Charge, Decision, Take, is_outage
from ..errors import RateLimitError
from ..quota_text import readable

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


def pace_timeout(take: Take, decision: Decision, max_delay: float | None = None) -> PaceTimeout:
    """The error for a take that was refused with this decision.

    ``max_delay`` is the total wait that the caller accepted, if the take has only the rest of it.
    """
    paced = _paced(take.charges[0])
    if is_outage(decision):
        return PaceTimeout(f"no slot of {paced}: the store is out, and its on_error refuses", decision)
    if decision.retry_after == math.inf:
        return PaceTimeout(
            f"no slot of {paced}, ever: the cost is above what {readable(decision.quota)} can give", decision
        )
    away, left = take.max_wait + decision.retry_after, ""
    if max_delay is None:
        max_delay = take.max_wait
    elif take.max_wait < max_delay:
        left = f", of which {take.max_wait:.6g} s are left"
    text = f"the next slot of {paced} is {away:.6g} s away, max_delay is {max_delay:g} s{left}"
    return PaceTimeout(text + (OUT if decision.degraded else ""), decision)


@contextlib.contextmanager
def of_all(take: Take, max_delay: float) -> Iterator[None]:
    """Let a ``PaceTimeout`` of a take that has only the rest of ``max_delay`` also quote ``max_delay``."""
    try:
        yield
    except PaceTimeout as error:
        if take.max_wait >= max_delay:
            raise
        raise pace_timeout(take, error.decision, max_delay) from None


def _paced(charge: Charge) -> str:
    """The name of the paced limit, and the key, unless it is the one of all calls."""
    name = charge.name or DEFAULT_NAME
    return f"{name!r} for {charge.key!r}" if charge.key else repr(name)


def as_refused(decision: Decision, too_long_us: float) -> Decision:
    """The decision for a caller that would have to wait ``too_long_us`` microseconds longer than it is willing to."""
    is_patient = decision.take.max_wait == math.inf
    take = replace(decision.take, max_wait=0.0) if is_patient else decision.take
    return replace(decision, take=take, allowed=False, wait_us=take.max_wait_us + max(too_long_us, 0.0), id=0)
