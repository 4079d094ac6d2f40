"""Keeps the calls that leave this process apart, so that no interval has more of them than the quota admits.

A store spaces slots, not calls: a caller that wakes late would leave just ahead of the punctual one behind it. So each
call is taken a second time at the moment when it leaves, from a state that only this process uses. A fixed window does
not need this: its slots are used within the window, or missed.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ...algorithms import ALGORITHMS, RollingWindowState, State, TokenBucketState, reset_us, unused
from ...decision import Charge
from ...quotas import FixedWindow, Quota, RollingWindow, TokenBucket

EXAMINED = 2
"""How many of the oldest levels are examined for each new one; those that have drained are dropped."""

ON_THE_WAY_US = 5_000.0
"""The least time that the first call of a burst has to arrive, because its connection may have to be opened.

The call counts later by this time, or by a fortieth of the burst's own time. That delays the calls behind it once, and
does not lower the rate. In a rolling window, each call has half a part. Evenly spaced calls have no such time.
"""

TOGETHER_US = 2_000.0
"""A call may leave as if this time had already passed: late by two milliseconds is on time.

Timers of event loops, which round up to whole milliseconds, are no more exact than that: each call would be late, and
the rate would drop. So an interval may have more calls, by as many as the quota admits in that time. The slots of the
store keep their distances.
"""

AT_ONCE_US = 1.0
"""The longest wait of a take here: with any wait, a cost above the burst fits into an empty bucket."""

_NO_CALLS: tuple[None, Quota, State] = (None, TokenBucket(1), TokenBucketState(0.0, 0.0, 0.0, 0.0))


class CallSpacing:
    """The state of each bucket, according to the calls that have left. Not thread-safe.

    Rolling windows are counted in the parts of the store's time, which is ahead of the local time by ``ahead_us``.
    """

    def __init__(self, on_the_way_us: float = 0.0) -> None:
        self._on_the_way_us = on_the_way_us
        self._states: OrderedDict[str, tuple[Quota, Quota, State]] = OrderedDict()
        """For each bucket, the charged quota, the quota by which its calls leave, and the state under the latter."""

    def __len__(self) -> int:
        return len(self._states)

    def give_back(self, bucket: str, units: float) -> bool:
        """Uncount ``units`` that have left on a bucket, the oldest first; return whether any had left."""
        charged, quota, state = self._states.get(bucket, _NO_CALLS)
        if charged is None or units <= 0.0:
            return False
        if units == math.inf:
            del self._states[bucket]
        elif isinstance(state, TokenBucketState):
            self._states[bucket] = charged, quota, state._replace(used=max(state.used - units, 0.0))
        elif isinstance(state, RollingWindowState):
            self._states[bucket] = charged, quota, state._replace(parts=tuple(_less(state.parts, units)))
        return True

    def depart(self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float = 0.0) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may.

        ``margin`` is the unused part of the limits of token buckets, which serves to catch up, so that a late call
        delays those behind it only for a while.
        """
        taken: list[tuple[Charge, Quota, State]] = []
        for charge in charges:
            quota = self._metered(charge.quota, margin)
            if type(quota) is not FixedWindow and charge.cost:  # a condition costs nothing
                state, wait_us = self._taken(quota, charge, now_us, ahead_us)
                if state is None or wait_us > 0.0:
                    return max(wait_us, AT_ONCE_US)
                taken.append((charge, quota, state))
        for charge, quota, state in taken:
            if charge.bucket not in self._states:
                self._drop_drained(now_us, ahead_us)
            self._states[charge.bucket] = charge.quota, quota, state
        return 0.0

    def _metered(self, quota: Quota, margin: float) -> Quota:
        """The quota by which calls of a quota leave."""
        if type(quota) is not TokenBucket:
            return quota
        if margin:
            quota = _without_margin(quota, margin)
        return _together(quota) if self._on_the_way_us else quota

    def on_the_way_us(self, quota: Quota) -> float:
        """The time that the first call of a burst of a quota has to arrive, which is 0 without a burst."""
        if type(quota) is not TokenBucket or quota.floor < 2.0 * TOGETHER_US * quota.rate or not self._on_the_way_us:
            return 0.0
        return max(self._on_the_way_us, quota.floor / quota.rate // 40.0)

    def wait_us(self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float = 0.0) -> float:
        """Microseconds until a call with these charges may leave, after one that has just left."""
        buckets = [
            (self._metered(each.quota, margin), each)
            for each in charges
            if type(each.quota) is not FixedWindow and each.cost
        ]
        return max([self._taken(quota, charge, now_us, ahead_us)[1] for quota, charge in buckets], default=0.0)

    def _taken(self, quota: Quota, charge: Charge, now_us: float, ahead_us: float) -> tuple[State | None, float]:
        """The state of a bucket after this charge has left, and the microseconds until it may leave."""
        algorithm, at_us = ALGORITHMS[type(quota)], now_us
        if isinstance(quota, RollingWindow):
            at_us += ahead_us + (quota.part_us // 2.0 if self._on_the_way_us else 0.0)
        charged, last_quota, state = self._states.get(charge.bucket, _NO_CALLS)
        if charged is None or (last_quota is not quota and last_quota != quota):
            state = unused(quota, at_us)
        elif state.at > at_us and (type(quota) is not TokenBucket or state.at > at_us + quota.period_us):
            state = algorithm.moved_back(quota, state, at_us)
        later_us = max(state.at - at_us, 0.0)  # until the first call of a burst has arrived, nothing drains
        is_first = type(quota) is TokenBucket and reset_us(quota, state, at_us) <= 0.0
        after, wait_us = algorithm.take(quota, state, at_us + later_us, charge.cost, AT_ONCE_US, 0.0)
        if after is None:
            return None, wait_us + later_us
        if is_first:
            after = after._replace(at=after.at + self.on_the_way_us(quota))
        return after, wait_us

    def _drop_drained(self, now_us: float, ahead_us: float) -> None:
        for _ in range(min(EXAMINED, len(self._states))):
            bucket, (charged, quota, state) = self._states.popitem(last=False)
            at_us = now_us if type(quota) is TokenBucket else now_us + ahead_us
            if reset_us(quota, state, at_us) > 0.0:
                self._states[bucket] = charged, quota, state


def _less(parts: Iterable[tuple[float, float]], units: float) -> Iterator[tuple[float, float]]:
    """The parts of a rolling window without ``units``, which are removed from the oldest parts first."""
    for part, count in parts:
        if count > units:
            yield part, count - units
        units = max(units - count, 0.0)


@lru_cache(maxsize=1000)
def _without_margin(quota: TokenBucket, margin: float) -> TokenBucket:
    return replace(quota, limit=quota.limit / (1.0 - margin))


@lru_cache(maxsize=1000)
def _together(quota: TokenBucket) -> TokenBucket:
    """A quota whose burst is at least one call and the units of the shortest metered time."""
    burst = 1.0 + quota.rate * TOGETHER_US
    return quota if quota.burst >= burst else replace(quota, burst=burst)
