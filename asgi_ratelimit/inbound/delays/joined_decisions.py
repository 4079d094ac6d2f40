"""Decisions on requests that wait: their remaining waits, and one decision joined from those on their parts.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...decision import Decision, Take
from ...quotas import SECOND_US


def beyond(refusal: Decision, max_delays: Sequence[float]) -> Decision:
    """A refusal as seen by a request that may wait for ``max_delays`` seconds for each charge.

    ``retry_after`` is the excess of the waits over what a new request may wait: once it is 0.0, it may.
    """
    excesses = [state.retry_after - most for state, most in zip(refusal.states, max_delays)]
    place = excesses.index(max(excesses))
    take = replace(refusal.take, max_wait=max_delays[place])
    return replace(refusal, take=take, wait_us=refusal.states[place].retry_after * SECOND_US)


def joined(take: Take, parts: Sequence[Decision], waited: float) -> Decision:
    """The decision on a take whose charges were taken one after another, by a request that has ``waited`` seconds.

    Its time is that of the first part, so what is given back of the others is never too much.
    """
    stored = {charge.bucket: state for part in parts for charge, state in zip(part.charges, part.stored)}
    return Decision(
        take,
        True,
        float(round(waited * SECOND_US)),
        [stored[charge.bucket] for charge in take.charges],
        min([part.now_us for part in parts]),
        parts[0].id,
        degraded=any(part.degraded for part in parts),
    )
