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

    ``retry_after`` is the excess of the waits over what a new request may wait, and at least a microsecond: this one,
    which has already waited, is refused.
    """
    excesses = [state.retry_after - most for state, most in zip(refusal.states, max_delays)]
    place = excesses.index(max(excesses))
    wait_us = max(refusal.states[place].retry_after * SECOND_US, 1.0)
    take = replace(refusal.take, max_wait=min(max_delays[place], (wait_us - 1.0) / SECOND_US))
    return replace(refusal, take=take, wait_us=wait_us)


def joined(take: Take, parts: Sequence[Decision]) -> Decision:
    """The decision on a take whose charges were taken one after another, the first of them at a slot of its own.

    Its time is that of the first part, so what is given back of the others is never too much.
    """
    first, *others = parts
    stored = {charge.bucket: state for part in parts for charge, state in zip(part.charges, part.stored)}
    return Decision(
        take,
        True,
        first.wait_us,
        [stored[charge.bucket] for charge in take.charges],
        first.now_us,
        first.id,
        degraded=any(part.degraded for part in parts),
        asked_us=max([first.now_us + first.wait_us, *[part.now_us for part in others]]),
    )
