"""Decisions on takes over given states, without a store."""

from __future__ import annotations

from collections.abc import Sequence

from asgi_ratelimit import Charge, Decision, Take, TokenBucket
from asgi_ratelimit.algorithms.take import State, decide, unused


def decided(take: Take, now: float, states: Sequence[State] | None = None) -> Decision:
    """The decision on a take, over unused buckets by default."""
    before = [unused(charge.quota, now) for charge in take.charges] if states is None else states
    wait_us, after = decide(take.charges, before, now, take.max_wait_us)
    if after is None:
        return Decision(take, False, wait_us, before, now)
    return Decision(take, True, wait_us, after, now, id=1)


def refusal(seconds: float) -> Decision:
    """A refusal after which the same take passes in so many seconds."""
    take = Take((Charge(TokenBucket(10), "key"),))
    return Decision(take, False, seconds * 1e6, [unused(TokenBucket(10), 0.0)], 0.0)
