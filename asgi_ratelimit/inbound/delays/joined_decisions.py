"""Decisions on requests that wait: their remaining waits, and one decision joined from those on their parts.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from ...decision import Decision, QuotaState, Take, with_states
from ...quotas import SECOND_US


def beyond(refusal: Decision, left: Sequence[float], max_delays: Sequence[float]) -> Decision:
    """A refusal as seen by a request that may still wait for ``left`` seconds for each charge.

    Only charges with a longer wait refuse. ``retry_after`` is the excess of their waits over the ``max_delays`` of a
    new request: once it is 0.0, a new request may wait for its slot.
    """
    states = tuple([_beyond(*each) for each in zip(refusal.states, left, max_delays)])
    decision = with_states(refusal, states)
    return replace(decision, ready_at=refusal.now_us / SECOND_US + decision.retry_after)


def _beyond(state: QuotaState, left: float, max_delay: float) -> QuotaState:
    return replace(state, allowed=state.retry_after <= left, retry_after=max(state.retry_after - max_delay, 0.0))


def joined(take: Take, parts: Sequence[Decision], waited: float) -> Decision:
    """The decision on a take whose charges were taken one after another, by a request that has ``waited`` seconds.

    It reports what is left at the end of the wait.
    """
    states = {}
    for part in parts:
        for charge, state in zip(part.charges, part.states):
            states[charge.bucket] = _later(state, part.delay)
    in_order = tuple([states[charge.bucket] for charge in take.charges])
    least = min(in_order, key=attrgetter("remaining"))
    return Decision(
        allowed=True,
        granted=take.charges[0].cost,
        delay=waited,
        retry_after=0.0,
        remaining=least.remaining,
        reset_after=least.reset_after,
        ready_at=max([part.ready_at for part in parts]),
        quota=least.quota,
        states=in_order,
        degraded=any(part.degraded for part in parts),
        take=take,
        now_us=max([part.now_us + part.delay * SECOND_US for part in parts]),
        parts=tuple(parts),
    )


def _later(state: QuotaState, seconds: float) -> QuotaState:
    """A state as it will be in ``seconds``, if nothing else comes."""
    if seconds == 0.0:
        return state
    return replace(
        state,
        reset_after=max(state.reset_after - seconds, 0.0),
        more_after=max(state.more_after - seconds, 0.0),
    )
