"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

No ``await``, no clock, no lock, no logging in this module. ``stores/rate_limit.lua`` has the same functions under the
same names in the same order, with the same operations on doubles, so that both give answers equal to the bit.

Times are whole microseconds as floats. A state is a tuple, and ``None`` stands for a bucket that was never used.
A token bucket's state is ``(level, last)``: the level as it was left at the time ``last``, scaled by the period, so
that a cost of 1 is ``period_us`` and the drain is ``limit`` for each microsecond. No rounding of intervals is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from .decision import Decision, QuotaState, Take
from .quotas import SECOND_US, Quota, TokenBucket

State: TypeAlias = tuple[float, float]

NEVER_US = 2.0**52
"""A wait this long (142 years) or longer is never: beyond it, adding 1 microsecond to the time may change nothing."""


def drained(quota: TokenBucket, level: float, elapsed: float) -> float:
    """The level after ``elapsed`` microseconds: what is above the line drains at the full rate, the rest slowly."""
    if elapsed <= 0.0:
        return level
    if level <= quota.line or quota.slow == quota.limit:
        left = level - elapsed * quota.slow
        return left if left > 0.0 else 0.0
    above = (level - quota.line) / quota.limit
    if elapsed <= above:
        return max(level - elapsed * quota.limit, quota.line)
    return max(quota.line - (elapsed - above) * quota.slow, 0.0)


def drain_time(quota: TokenBucket, level: float, target: float) -> float:
    """Microseconds, rounded up, until the level is down to ``target``."""
    if level <= target:
        return 0.0
    if target >= quota.line or quota.slow == quota.limit:
        return float(math.ceil((level - target) / quota.limit))
    fast = max(level - quota.line, 0.0) / quota.limit
    return float(math.ceil(fast + (min(level, quota.line) - target) / quota.slow))


def healed(quota: TokenBucket, state: State | None, now: float) -> State:
    """The state to reckon with: where the clock fell back by more than a period, it was last changed now.

    A smaller step back is left alone and drains nothing, so that it neither gives units nor locks anyone out.
    """
    if state is None:
        return (0.0, now)
    if now < state[1] - quota.period_us:
        return (state[0], now)
    return state


def wait(quota: TokenBucket, state: State, now: float, cost: float) -> float:
    """Microseconds until ``cost`` conforms: 0, or infinity for never.

    The least whole number w such that the level at ``now + w`` leaves room for the cost, whatever was rounded.
    """
    level, last = state
    target = quota.cap - cost * quota.period_us
    if target < 0.0:
        target = 0.0
    if drained(quota, level, now - last) <= target:
        return 0.0
    found = last + drain_time(quota, level, target) - now
    if found >= NEVER_US:
        return math.inf
    while drained(quota, level, now + found - last) > target:
        found += 1.0
    while drained(quota, level, now + (found - 1.0) - last) <= target:
        found -= 1.0
    return found


def book(quota: TokenBucket, state: State, now: float, cost: float, wait_us: float) -> State:
    """The state after taking ``cost`` at ``now + wait_us``.

    Until the slot the bucket is held so full that it drains back to the right level at that moment.
    """
    level, last = state
    slot = now + wait_us
    level = drained(quota, level, slot - last) + cost * quota.period_us
    since = now if now > last else last
    return (level + (slot - since) * quota.limit, since) if slot > since else (level, since)


def reset_us(quota: TokenBucket, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    level, last = state
    return (last - now if last > now else 0.0) + drain_time(quota, drained(quota, level, now - last), 0.0)


def outlook(quota: TokenBucket, state: State, now: float) -> tuple[float, float, float]:
    """Whole units left, microseconds until there is one more, and until the bucket is as good as never used."""
    level, last = state
    ahead = last - now if last > now else 0.0
    level = drained(quota, level, now - last)
    left = (quota.cap - level) // quota.period_us
    if left < 0.0:
        left = 0.0
    enough = quota.cap - (left + 1.0) * quota.period_us
    more = ahead + drain_time(quota, level, enough) if enough >= 0.0 else 0.0
    return left, more, ahead + drain_time(quota, level, 0.0)


def decide(take: Take, states: Sequence[State | None], now: float) -> tuple[Decision, list[State] | None]:
    """The decision of a take over the states of its charges, and their new states, or ``None`` if nothing is written.

    All charges are asked for their wait and the longest decides: within the take's ``max_wait`` all book at that
    moment, else none does. A refusal writes nothing, but for a state that a clock set back by more than a period had
    left in the future: it is brought back once, lest it lock its key out.
    """
    known, waits, longest = _ask(take, states, now)
    if longest > take.max_wait_us or longest == math.inf:
        return _refusal(take, known, waits, now), known if _moved(states, known) else None
    booked = [book(charge.quota, state, now, charge.cost, longest) for charge, state in zip(take.charges, known)]
    return _grant(take, booked, longest, now), booked


def foresee(take: Take, states: Sequence[State | None], now: float) -> Decision:
    """What ``decide`` would say, over the states as they are: nothing is taken, and nothing written."""
    known, waits, longest = _ask(take, states, now)
    if longest > take.max_wait_us or longest == math.inf:
        return _refusal(take, known, waits, now)
    return _grant(take, known, longest, now)


def _ask(take: Take, states: Sequence[State | None], now: float) -> tuple[list[State], list[float], float]:
    """The states to reckon with, each charge's own wait, and the longest of these."""
    known, waits, longest = [], [], 0.0
    for charge, stored in zip(take.charges, states):
        state = healed(charge.quota, stored, now)
        if charge.cost > charge.quota.burst and not take.max_wait_us:
            own = math.inf  # when pacing, such a cost waits for an empty bucket and then holds it
        else:
            own = wait(charge.quota, state, now, charge.cost)
        known.append(state)
        waits.append(own)
        if own > longest:
            longest = own
    return known, waits, longest


def _moved(states: Sequence[State | None], known: list[State]) -> bool:
    return any(s is not None and s is not k for s, k in zip(states, known))


def _grant(take: Take, states: list[State], delay_us: float, now: float) -> Decision:
    told = tuple([_quota_state(c.quota, s, now, 0.0) for c, s in zip(take.charges, states)])
    least = told[0] if len(told) == 1 else min(told, key=_remaining)
    return Decision(
        True,
        take.charges[0].cost,
        delay_us / SECOND_US,
        0.0,
        least.remaining,
        least.reset_after,
        (now + delay_us) / SECOND_US,
        least.quota,
        told,
        False,
        False,
        take,
    )


def _refusal(take: Take, states: list[State], waits: list[float], now: float) -> Decision:
    told = tuple(
        [
            _quota_state(c.quota, s, now, own if own == math.inf else max(own - take.max_wait_us, 0.0))
            for c, s, own in zip(take.charges, states, waits)
        ]
    )
    worst = told[0] if len(told) == 1 else max(told, key=_retry_after)
    return Decision(
        False,
        0,
        0.0,
        worst.retry_after,
        worst.remaining,
        worst.reset_after,
        now / SECOND_US + worst.retry_after,
        worst.quota,
        told,
        False,
        False,
        take,
    )


def _remaining(state: QuotaState) -> int:
    return state.remaining


def _retry_after(state: QuotaState) -> float:
    return state.retry_after


def _quota_state(quota: TokenBucket, state: State, now: float, retry_us: float) -> QuotaState:
    left, more_us, reset_us = outlook(quota, state, now)
    return QuotaState(
        quota,
        retry_us == 0.0,
        int(left),
        retry_us / SECOND_US,
        reset_us / SECOND_US,
        more_us / SECOND_US,
    )
