"""The token bucket, a leaky bucket as a meter: what is used drains at ``limit / period``, and a full bucket refuses.

Above the burst, what is used is the length of the queue that is booked ahead, which drains at the same rate. So the
queue is first come, first served, and each charge is a piece of it. With a burst allowance factor below 1, what lies
below ``burst - 1`` drains more slowly.

The promise: in any interval of length T, at most ``burst + T * rate`` actual units, whatever the pattern.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

from ..quotas import TokenBucket
from . import FITS_US, LARGEST, NEVER, NEVER_US, NOISE_US, TOKEN_BUCKET, Booked

_VALUE = struct.Struct("<BI4d")


class TokenBucketState(NamedTuple):
    """``used`` units at the time ``at``; the bucket was last empty at ``since``, or has a slot then with room before.

    ``returned`` are the units that were given back since then from in front of later charges.
    """

    used: float
    at: float
    since: float
    returned: float


# The state of these four numbers, in half the time that the class takes.
state_of: Callable[[tuple[float, float, float, float]], TokenBucketState] = partial(tuple.__new__, TokenBucketState)


def unused(quota: TokenBucket, now: float) -> TokenBucketState:
    """The state of a bucket that was never used."""
    return TokenBucketState(0.0, now, now, 0.0)


def moved_back(quota: TokenBucket, state: TokenBucketState, now: float) -> TokenBucketState:
    """The state after the clock went back: time has stood still, so nothing has drained.

    Earlier charges give nothing back, because their times are no longer those of the bucket.
    """
    used, at, _, returned = state
    return TokenBucketState(used, now, at + used / quota.rate + 1.0, returned)


def changed(quota: TokenBucket, state: TokenBucketState, now: float) -> TokenBucketState:
    """The state of a quota whose numbers were others: what was used stays used, up to the new burst.

    Earlier charges give nothing back, because their places are places under the old numbers.
    """
    return TokenBucketState(min(state.used, quota.burst), state.at, now, 0.0)


def pack(quota: TokenBucket, state: TokenBucketState) -> bytes:
    """The value of a state."""
    used, at, since, returned = state
    return _VALUE.pack(TOKEN_BUCKET, quota.stamp, used, at, since, returned)


def unpack(value: bytes) -> tuple[int, float, TokenBucketState]:
    """The stamp, the time and the state in a value."""
    _, stamp, used, at, since, returned = _VALUE.unpack(value)
    return stamp, at, state_of((used, at, since, returned))


def is_valid(quota: TokenBucket | None, value: bytes) -> bool:
    """Whether it is a value: not damaged, of an older format or of another kind; ``None`` is an unknown quota."""
    if len(value) != _VALUE.size:
        return False
    kind, _, used, at, since, returned = _VALUE.unpack(value)
    is_state = kind == TOKEN_BUCKET and 0.0 <= used <= LARGEST and 0.0 <= at <= LARGEST
    return bool(is_state and -LARGEST <= since <= LARGEST and 0.0 <= returned <= LARGEST)


def drained(quota: TokenBucket, used: float, elapsed: float) -> float:
    """What is left of ``used`` units after ``elapsed`` microseconds."""
    if elapsed <= 0.0:
        return used
    left = used - elapsed * quota.rate
    if left >= quota.floor:
        return left
    if used > quota.floor:
        elapsed, used = elapsed - (used - quota.floor) / quota.rate, quota.floor
    left = used - elapsed * quota.slow_rate
    return left if left > 0.0 else 0.0


def time_until(quota: TokenBucket, used: float, target: float) -> float:
    """The microseconds until ``used`` has drained to ``target`` units, rounded up; 0 if that is noise."""
    if used <= target:
        return 0.0
    if target >= quota.floor:
        exact = (used - target) / quota.rate
    else:
        slow = min(used, quota.floor)
        exact = (used - slow) / quota.rate + (slow - target) / quota.slow_rate
    if exact <= FITS_US:
        return 0.0
    return float(ceil(exact - NOISE_US)) if exact < NEVER_US else NEVER


def take(
    quota: TokenBucket, state: TokenBucketState, now: float, cost: float, max_wait: float, min_wait: float
) -> tuple[TokenBucketState | None, float]:
    """The state after ``cost`` units are taken at the earliest moment from ``min_wait`` on, and the wait until then.

    ``None`` if the wait is longer than ``max_wait``. A cost above the burst needs an empty bucket, and only a caller
    that may wait gets it.
    """
    used, at, since, returned = state
    left = used if now <= at else drained(quota, used, now - at)
    if left <= 0.0:
        since, returned = now, 0.0
    burst, after, wait = quota.burst, left + cost, 0.0
    if after > burst:
        if cost > burst:
            wait = NEVER if max_wait <= 0.0 else time_until(quota, left, quota.slack)
        else:
            wait = time_until(quota, left, burst - cost + quota.slack)
        if wait > max_wait or wait == NEVER:
            return None, wait
    if min_wait > wait:
        wait = min_wait
    if wait > 0.0:  # as much as has drained by the slot to what is used then
        at_slot = drained(quota, left, wait) + cost
        after = at_slot + wait * quota.rate
        if at_slot < burst - quota.slack - quota.rate:  # others may go before it, and nothing comes back in front
            since = max(since, now + wait)
    return state_of((after, now, since, returned)), wait


def place_of(quota: TokenBucket, state: TokenBucketState) -> float:
    """The place in the queue of the charge that has just been booked: where its piece ends."""
    return state.used + state.returned


def give_back(
    quota: TokenBucket, state: TokenBucketState, now: float, charge: Booked, units: float
) -> TokenBucketState:
    """The state after ``units`` of a charge come back.

    Giving back cuts only what has not run off yet, so what has run off and what is left are together never less than
    the actual costs would have left. Both bounds of what comes back from in front of others err on the safe side.
    """
    used, at, since, returned = state
    if max(charge.slot, charge.at) < since or charge.at > now:  # it was empty in between, or the clock went back
        return state
    left = drained(quota, used, now - at)
    end = charge.place - returned - quota.rate * (now - charge.at)
    if end >= left - max(quota.slack, min(quota.rate, charge.cost / 2.0)):  # it is the newest
        if charge.slot > now and units < charge.cost:  # what is left keeps its slot, and nothing comes back in front
            since = max(since, charge.slot)
        left = min(left, end)  # a slot that came back from behind it was up to a microsecond later than it had to be
        return state_of((left - min(units, left), now, since, returned))
    if left > quota.burst + quota.slack:  # slots are booked behind it, and keep their times
        return state
    back = min(units, left, max(charge.cost - quota.rate * (now - charge.slot), end))
    if back <= 0.0:
        return state
    return state_of((left - back, now, since, returned + back))


def debit(quota: TokenBucket, state: TokenBucketState, now: float, slot: float, units: float) -> TokenBucketState:
    """The state after ``units`` more were used than charged: they go to the end of the queue, as any charge does."""
    used, at, since, returned = state
    left = drained(quota, used, now - at)
    if left <= 0.0:
        since, returned = now, 0.0
    return TokenBucketState(left + units, now, since, returned)


def available(quota: TokenBucket, state: TokenBucketState, now: float) -> tuple[int, float]:
    """The whole units that can be taken now, and the microseconds until one more can be: 0 if all can."""
    used, at, _, _ = state
    left, burst = used if now <= at else drained(quota, used, now - at), quota.burst
    units = int(burst - left + quota.slack + quota.slow_rate * FITS_US) if left <= burst else 0
    if units + 1.0 > burst:
        return int(burst), 0.0
    return units, time_until(quota, left, burst - units - 1.0 + quota.slack)


def reset_us(quota: TokenBucket, state: TokenBucketState, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters."""
    return time_until(quota, drained(quota, state.used, now - state.at), 0.0)


def in_use(quota: TokenBucket, state: TokenBucketState, now: float) -> float:
    """The units that are used or booked, and have not come back."""
    return drained(quota, state.used, now - state.at)


def booked_ahead(quota: TokenBucket, state: TokenBucketState, now: float) -> float:
    """The units that are booked for later."""
    return max(in_use(quota, state, now) - quota.burst, 0.0)
