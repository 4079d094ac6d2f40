"""The token bucket: a leaky bucket as a meter.

The core of the state is the level at the time ``last``, scaled by the period: a cost of 1 is ``period_us``, and the
bucket drains by ``limit`` in each microsecond. So no interval has to be rounded, whatever the rate.

The level is also the length of a queue that runs off at the full rate. Each admitted unit has its own piece of the
queue, which runs off no earlier than the unit's slot, and at most ``burst_level`` after it. The units of any interval
of length T therefore lie within ``T * limit + burst_level`` of the queue, and number at most ``T * limit / period +
burst``. That is the promise. Units that are given back leave a gap ``(start, size)`` in the queue, in levels as of
``last``. The next charge that fits takes it. A gap at the end of the queue is cut off. The modules in ``giving_back``
say which units come back, and what is recorded for that.
"""

from __future__ import annotations

from ..quotas import TokenBucket
from .giving_back.gaps import earliest_gap, gaps_after, gaps_without, place_in_gap, units_in_gaps
from .giving_back.queued_charges import place
from .giving_back.recording import is_hidden, record_after, record_in_gap
from .giving_back.settled_charges import debit, give_back
from .packed_states import ANEW, older_reset_us, rescaled
from .state import NEVER, NEVER_US, Outlook, State, Taken
from .token_bucket_level import (
    admit,
    drain_time,
    drain_wait,
    drained,
    refused,
    scaled_cost,
    simple_outlook,
    simple_wait,
    units_at,
)

__all__ = [
    "at_end",
    "booked_ahead",
    "debit",
    "fresh",
    "give_back",
    "is_queue",
    "merged",
    "most_at_once",
    "of_version",
    "outlook",
    "place",
    "rebased",
    "reset_us",
    "share",
    "take",
    "used",
    "wait",
]


def fresh(now: float, birth: int = 0) -> State:
    """The state of a bucket that was never used."""
    return (0.0, now, birth, (), (), b"")


def rebased(quota: TokenBucket, state: State, now: float, birth: int = 0) -> State:
    """The state as if its last change were now."""
    return (state[0], now, birth, state[3], (), state[5])


def take(
    quota: TokenBucket,
    state: State,
    now: float,
    cost: float,
    max_wait_us: float,
    min_wait_us: float = 0.0,
    may_settle: bool = False,
) -> Taken:
    """Take ``cost`` units at the earliest slot from ``now + min_wait_us`` on, or none if it is too far away.

    The slot is the first gap that the cost fits into, or else the end of the queue. Until the slot, the level of the
    bucket is kept so high that it drains to the right level at that moment.
    """
    level, last, generation, gaps, record, older = state
    if older and older_reset_us(quota, older, now) <= 0.0:
        older = b""
        state = (level, last, generation, gaps, record, older)
    elapsed = now - last
    is_simple = elapsed >= 0.0 and quota.is_simple and not gaps and not min_wait_us
    after = admit(quota, level, elapsed, cost) if is_simple else None
    if after is not None:
        if record or may_settle:
            left = drained(quota, level, elapsed)
            record = record_after(quota, state, now, now, (left, left), scaled_cost(quota, cost))
        return (after, now, generation, (), record, older), 0.0, simple_outlook(quota, after, 0.0)
    refusal = refused(quota, level, elapsed, cost) if is_simple and max_wait_us <= 0.0 else None
    if refusal is not None:
        return refusal
    wait_us = wait(quota, state, now, cost, min_wait_us, max_wait_us)
    if wait_us > max_wait_us or wait_us == NEVER:
        return None, wait_us, simple_outlook(quota, level, elapsed) if is_simple else outlook(quota, state, now)
    booked = _booked(quota, state, now, scaled_cost(quota, cost), wait_us, may_settle)
    return booked, wait_us, simple_outlook(quota, booked[0], 0.0) if is_simple else outlook(quota, booked, now)


def wait(
    quota: TokenBucket, state: State, now: float, cost: float, min_wait_us: float = 0.0, max_wait_us: float = NEVER
) -> float:
    """The least wait, at least ``min_wait_us``, at which a cost conforms, in a gap or at the end of the queue.

    A cost above the burst never conforms if nothing may wait. If it may wait, as when pacing, it waits for an empty
    bucket.
    """
    level, last, _, gaps, _, _ = state
    scaled, elapsed, wait_us = scaled_cost(quota, cost), now - last, min_wait_us
    target = quota.burst_level - scaled
    if target < 0.0:
        if cost > quota.burst and max_wait_us <= 0.0:
            return NEVER
        target = 0.0
    if drained(quota, level, elapsed + min_wait_us) > target:
        time_until = simple_wait if quota.is_simple and elapsed >= 0.0 and not min_wait_us else drain_wait
        wait_us = time_until(quota, level, elapsed, target)
    if not gaps or wait_us <= min_wait_us:
        return wait_us
    return earliest_gap(quota, gaps, elapsed, scaled, wait_us, min_wait_us)


def _booked(quota: TokenBucket, state: State, now: float, scaled: float, wait_us: float, may_settle: bool) -> State:
    """The state after taking a ``scaled`` cost at ``now + wait_us``, in the first gap that fits it, if one does."""
    level, last, generation, gaps, record, older = state
    since, is_recorded = (now if now > last else last), may_settle or bool(record)
    left_now, slot = drained(quota, level, since - last), max(now + wait_us, since)
    in_gap = place_in_gap(quota, state, now, scaled, wait_us) if gaps else None
    if in_gap is not None:
        below = max(in_gap[1] - (slot - since) * quota.limit, 0.0)
        if is_recorded or is_hidden(quota, since, slot, below, scaled):
            record = record_in_gap(quota, state, since, slot, (left_now, below), scaled)
        return (left_now, since, generation, gaps_without(quota, gaps, since - last, in_gap, scaled), record, older)
    left = drained(quota, level, slot - last) if wait_us > 0.0 else left_now
    booked = left + scaled + (slot - since) * quota.limit
    if is_recorded or is_hidden(quota, since, slot, left, scaled):
        record = record_after(quota, state, since, slot, (left_now, left), scaled)
    return (booked, since, generation, gaps_after(quota, gaps, since - last) if gaps else (), record, older)


def outlook(quota: TokenBucket, state: State, now: float) -> Outlook:
    """The whole units that could be taken now one by one, and the microseconds until one more, and until all.

    The one more is counted at the end of the queue. If units were given back, it may come even sooner.
    """
    level, last, _, gaps, _, _ = state
    elapsed = now - last
    left = drained(quota, level, elapsed)
    units = units_at(quota, left)
    enough, more_us = quota.burst_level - (units + 1.0) * quota.period_us, 0.0
    if enough >= 0.0:
        more_us = min(drain_wait(quota, level, elapsed, enough), NEVER_US)
    if gaps:
        units += sum(units_in_gaps(quota, gaps, elapsed))
    return units, more_us, (-elapsed if elapsed < 0.0 else 0.0) + drain_time(quota, left, 0.0)


def most_at_once(quota: TokenBucket, state: State, now: float) -> float:
    """The most whole units that one take could get now: at the end of the queue, or in the largest gap."""
    level, last, _, gaps, _, _ = state
    units = units_at(quota, drained(quota, level, now - last))
    return max([units, *units_in_gaps(quota, gaps, now - last)]) if gaps else units


def reset_us(quota: TokenBucket, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters, in all versions."""
    level, last, _, _, _, older = state
    own_us = (last - now if last > now else 0.0) + drain_time(quota, drained(quota, level, now - last), 0.0)
    return max(own_us, older_reset_us(quota, older, now)) if older else own_us


def of_version(quota: TokenBucket, stored: State, stamp: bytes, older: bytes) -> State:
    """The state made from one ``stored`` under another ``stamp``, with the other version's value ``older``.

    What was used stays used, up to the burst. What is booked ahead keeps its slots, and nobody else waits for them.
    """
    level, last, generation, _, _, _ = stored
    return (min(rescaled(quota, level, stamp), quota.burst_level), last, generation ^ ANEW, (), (), older)


def merged(quota: TokenBucket, own: State, other: State) -> State:
    """The fuller of this version's ``own`` state, which the other one carried, and the one made from ``other``."""
    level, last, generation, gaps, record, _ = own
    since = max(last, other[1])
    left, used = drained(quota, level, since - last), drained(quota, other[0], since - other[1])
    if used <= left:
        return (*own[:5], other[5])
    if record:
        record = record_after(quota, own, since, since, (left, left), used - left)
    return (used, since, generation, gaps_after(quota, gaps, since - last), record, other[5])


def at_end(quota: TokenBucket, state: State) -> State:
    """The state without its gaps."""
    return (*state[:3], (), *state[4:])


def is_queue(quota: TokenBucket, state: State, now: float) -> bool:
    """Whether what conforms at one time from now on conforms at any later one: there are no gaps."""
    return not state[3]


def booked_ahead(quota: TokenBucket, state: State, now: float) -> float:
    """The units that are booked for later: what lies above a full burst in the queue, without its gaps."""
    level, last, _, gaps, _, _ = state
    ahead = max(drained(quota, level, now - last) - quota.burst_level, 0.0)
    for start, size in gaps_after(quota, gaps, now - last):
        ahead -= max(start + size - max(start, quota.burst_level), 0.0)
    return max(ahead, 0.0) / quota.period_us


def share(quota: TokenBucket, state: State, replicas: float) -> State:
    """One replica's part of what was used."""
    level, last, generation, _, _, _ = state
    return (level / replicas, last, generation, (), (), b"")


def used(quota: TokenBucket, state: State, now: float) -> float:
    """The units that have not run off yet."""
    free = sum([size for _, size in gaps_after(quota, state[3], now - state[1])])
    return (drained(quota, state[0], now - state[1]) - free) / quota.period_us
