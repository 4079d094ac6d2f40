"""The distances of the calls that leave, within this process.

A store spaces slots, not calls: a caller that wakes late would leave just ahead of the punctual one behind it. So each
call is taken a second time when it leaves, from a state that only this process uses.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import RLock

from ..algorithms import ALGORITHMS, RollingWindowState, State, TokenBucketState, reset_us, unused
from ..decision import Charge
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .drivers import reset_in_child

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


class CallSpacing:
    """The state of each bucket, according to the calls that have left. Thread-safe.

    A fixed window does not need this: its slots are used within the window, or missed. Rolling windows are counted in
    the parts of the store's time, which is ahead of the local time by ``ahead_us``. ``is_real`` says that the time of
    the store is, so that calls need time on their way.
    """

    def __init__(self, *, is_real: bool = False) -> None:
        self._is_real = is_real
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
        """Uncount ``units`` that have left on a bucket, the oldest first."""
        with self._lock:
            if bucket not in self._states:
                return
            if units == math.inf:
                del self._states[bucket]
            else:
                quota, state = self._states[bucket]
                if isinstance(state, TokenBucketState):
                    state = state._replace(used=max(state.used - units, 0.0))
                elif isinstance(state, RollingWindowState):
                    state = state._replace(parts=tuple(_less(state.parts, units)))
                self._states[bucket] = quota, state

    def depart(
        self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float = 0.0, *, leaves: bool = True
    ) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may.

        Without ``leaves``, nothing is recorded. ``margin`` is the unused part of the limits of token buckets, which
        serves to catch up, so that a late call delays those behind it only for a while.
        """
        taken = {}
        with self._lock:
            for charge in charges:
                if type(charge.quota) is not FixedWindow and charge.cost:  # a condition costs nothing
                    quota = _metered(charge.quota, margin, self._is_real)
                    state, wait_us = self._taken(quota, charge, now_us, ahead_us)
                    if state is None or wait_us > 0.0:
                        return max(wait_us, AT_ONCE_US)
                    taken[charge.bucket] = quota, state
            for bucket in taken if leaves else ():
                if bucket not in self._states:
                    self._drop_drained(now_us, ahead_us)
                self._states[bucket] = taken[bucket]
        return 0.0

    def _taken(self, quota: Quota, charge: Charge, now_us: float, ahead_us: float) -> tuple[State | None, float]:
        """The state of a bucket after this charge has left, and the microseconds until it may leave."""
        at_us = now_us
        if isinstance(quota, RollingWindow):
            at_us += ahead_us + (quota.part_us // 2.0 if self._is_real else 0.0)
        last_quota, state = self._states.get(charge.bucket, (None, None))
        if state is None or last_quota != quota:
            state = unused(quota, at_us)
        later_us, on_the_way_us = 0.0, 0.0
        if isinstance(quota, TokenBucket):
            later_us = max(state.at - at_us, 0.0)  # until the first call of a burst has arrived, nothing drains
            if self._is_real and quota.floor >= 2.0 * TOGETHER_US * quota.rate and not reset_us(quota, state, at_us):
                on_the_way_us = max(ON_THE_WAY_US, quota.floor / quota.rate // 40.0)
        after, wait_us = ALGORITHMS[type(quota)].take(quota, state, at_us + later_us, charge.cost, AT_ONCE_US, 0.0)
        if after is not None and on_the_way_us:
            after = after._replace(at=after.at + on_the_way_us)
        return after, wait_us if after is not None else wait_us + later_us

    def _drop_drained(self, now_us: float, ahead_us: float) -> None:
        for _ in range(min(EXAMINED, len(self._states))):
            bucket, (quota, state) = self._states.popitem(last=False)
            if reset_us(quota, state, now_us if type(quota) is TokenBucket else now_us + ahead_us) > 0.0:
                self._states[bucket] = quota, state


def _less(parts: Sequence[tuple[float, float]], units: float) -> Iterator[tuple[float, float]]:
    """The parts of a rolling window without ``units``, which are removed from the oldest parts first."""
    for part, used in parts:
        if used > units:
            yield part, used - units
        units = max(units - used, 0.0)


@lru_cache(maxsize=1000)
def _metered(quota: Quota, margin: float, is_real: bool) -> Quota:
    """The quota by which calls leave: without the margin, and with a burst of what is due while a call is on time."""
    if not isinstance(quota, TokenBucket):
        return quota
    if margin:
        quota = replace(quota, limit=quota.limit / (1.0 - margin))
    burst = 1.0 + quota.rate * TOGETHER_US
    return replace(quota, burst=burst) if is_real and quota.burst < burst else quota
