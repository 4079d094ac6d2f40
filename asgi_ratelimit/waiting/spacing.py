"""The distances of the calls that leave, within this process.

A store spaces slots, not calls: a caller that wakes late would leave just ahead of the punctual one behind it. So each
call is taken a second time when it leaves, from a state that only this process uses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from threading import RLock

from ..algorithms import ALGORITHMS, State, TokenBucketState, unused
from ..clock import SystemClock, monotonic_us
from ..decision import Charge
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .drivers import reset_in_child

MOST_BUCKETS = 10_000
"""Of how many buckets the state is kept; those that were used last stay."""

ON_THE_WAY_US = 5_000.0, 50_000.0
"""The least and the most time that the first call of a burst has to arrive, as its connection may have to be opened.

The burst is smaller by what is due in a fortieth of its own time, within these bounds. That delays the last of its
calls and those behind it once, and does not lower the rate. In a rolling window, each call has half a part. Evenly
spaced calls have no such time.
"""

TOGETHER_US = 2_000.0
"""A call may leave as if this time had already passed: late by two milliseconds is on time.

Timers of event loops, which round up to whole milliseconds, are no more exact than that: each call would be late, and
the rate would drop. So an interval may have more calls, by as many as the quota admits in that time. The slots of the
store keep their distances.
"""

AT_ONCE_US = 1.0
"""The longest wait of a take here: with any wait, a cost above the burst fits into an empty bucket."""


class CallSpacing:
    """The state of each bucket, according to the calls that have left. Thread-safe.

    A fixed window does not need this: its slots are used within the window, or missed. ``is_real`` says that the time
    of the store is, so that calls need time on their way.
    """

    def __init__(self, *, is_real: bool = False) -> None:
        self._is_real = is_real
        self._ahead_us = SystemClock().now_us() - monotonic_us()
        """Rolling windows are counted in the parts of the store's time, which is about that of this machine."""
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all calls."""
        self._lock = RLock()  # as that of the queues
        self._states: OrderedDict[str, tuple[Quota, State]] = OrderedDict()
        """For each bucket, the quota by which its calls leave, and the state under it."""

    def __len__(self) -> int:
        return len(self._states)

    def give_back(self, bucket: str, units: float) -> None:
        """Uncount ``units`` that have left on a bucket; those of a rolling window then all count anew."""
        with self._lock:
            if units and bucket in self._states:
                quota, state = self._states.pop(bucket)
                if isinstance(state, TokenBucketState) and units < state.used:
                    self._states[bucket] = quota, state._replace(used=state.used - units)

    def depart(self, charges: Sequence[Charge], now_us: float, margin: float = 0.0) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may.

        ``margin`` is the unused part of the limits of token buckets, which serves to catch up, so that a late call
        delays those behind it only for a while.
        """
        taken = {}
        with self._lock:
            for charge in charges:
                if type(charge.quota) is not FixedWindow and charge.cost:  # a condition costs nothing
                    quota, at_us = _metered(charge.quota, margin, self._is_real), now_us
                    if isinstance(quota, RollingWindow) and self._is_real:
                        at_us += self._ahead_us + quota.part_us // 2.0
                    last_quota, state = self._states.get(charge.bucket, (None, None))
                    state = state if last_quota == quota else unused(quota, at_us)
                    wait_us: float
                    after, wait_us = ALGORITHMS[type(quota)].take(quota, state, at_us, charge.cost, AT_ONCE_US, 0.0)
                    if wait_us > 0.0:
                        return max(wait_us, AT_ONCE_US)
                    taken[charge.bucket] = quota, after
            for bucket in taken:
                self._states[bucket] = taken[bucket]
                self._states.move_to_end(bucket)
                if len(self._states) > MOST_BUCKETS:
                    self._states.popitem(last=False)
        return 0.0


@lru_cache(maxsize=1000)
def _metered(quota: Quota, margin: float, is_real: bool) -> Quota:
    """The quota by which calls leave: without the margin, and in real time with a burst that allows for delays.

    A small burst is what is due while a call is on time. A large one leaves the first call time on its way.
    """
    if not isinstance(quota, TokenBucket):
        return quota
    if margin:
        quota = replace(quota, limit=quota.limit / (1.0 - margin))
    if not is_real:
        return quota
    due, on_the_way_us = quota.rate * TOGETHER_US, 0.0
    if quota.floor >= 2.0 * due:
        least_us, most_us = ON_THE_WAY_US
        on_the_way_us = min(max(quota.floor / quota.rate / 40.0, least_us), most_us)
    return replace(quota, burst=max(quota.burst - quota.rate * on_the_way_us, 1.0 + due))
