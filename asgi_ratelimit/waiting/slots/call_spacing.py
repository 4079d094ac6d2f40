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

from ...algorithms import ALGORITHMS, State, admit, current, refused, reset_us, scaled_cost
from ...decision import Charge
from ...quotas import FixedWindow, Quota, RollingWindow, TokenBucket

EXAMINED = 2
"""How many of the oldest levels are examined for each new one; those that have drained are dropped."""

ON_THE_WAY_US = 5_000.0
"""The least time that the first call of a burst has to arrive, because its connection may have to be opened.

The call counts later by this time, or by a fortieth of the burst's own time. That delays the calls behind it once, and
does not lower the rate. In a rolling window, each call has half a part. Evenly spaced calls have no such time.
"""

TOGETHER_US, SPACED_US = 1_000.0, 2_000.0
"""Calls that are less than the second number of microseconds apart may leave as if the first number had already passed.

Timers and tasks are no more exact than that: each call would be late, and the rate would drop. So an interval may have
more of these calls, by as many as the quota admits in a millisecond. The slots of the store keep their distances,
however short.
"""

AT_ONCE_US = 1.0
"""The longest wait of a take here: with any wait, a cost above the burst fits into an empty bucket."""

_NO_CALLS: tuple[None, Quota, State] = (None, TokenBucket(1), (0.0, 0.0, 0, (), (), b""))


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
        elif isinstance(quota, TokenBucket):
            self._states[bucket] = charged, quota, (max(state[0] - units * quota.period_us, 0.0), *state[1:])
        elif isinstance(quota, RollingWindow):
            full_until, debit, parts = state[0]
            self._states[bucket] = charged, quota, ((full_until, debit, tuple(_less(parts, units))), *state[1:])
        return True

    def depart(self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float = 0.0) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may.

        ``margin`` is the unused part of the limits of token buckets, which serves to catch up, so that a late call
        delays those behind it only for a while.
        """
        if self.depart_simply(charges, now_us) >= 0.0:
            return 0.0
        return self._depart(charges, now_us, ahead_us, margin)

    def depart_simply(self, charges: Sequence[Charge], now_us: float) -> float:
        """Record that a call of one plain bucket leaves now; return the microseconds until the next like it may leave.

        A negative number says that ``depart`` has to decide.
        """
        charge = charges[0]
        charged, quota, state = self._states.get(charge.bucket, _NO_CALLS)
        if charged is not charge.quota or len(charges) != 1 or type(quota) is not TokenBucket or not quota.is_simple:
            return -1.0
        level, at_us, *_ = state
        elapsed_us = now_us - at_us if at_us < now_us else 0.0
        after = admit(quota, level, elapsed_us, charge.cost)
        # the first call of a burst has time to arrive, and nothing drains until then
        is_first = level <= elapsed_us * quota.limit and quota.burst > 1.0
        if after is None or is_first or at_us - now_us > quota.period_us:
            return -1.0
        at_us += elapsed_us
        self._states[charge.bucket] = charged, quota, (after, at_us, 0, (), (), b"")
        over = after + scaled_cost(quota, charge.cost) - quota.burst_level
        return at_us - now_us - (-over / quota.limit // 1.0) if over > 0.0 else 0.0

    def _depart(self, charges: Sequence[Charge], now_us: float, ahead_us: float, margin: float) -> float:
        """``depart`` with any charges, including the first call of a burst, and a call that may not leave."""
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
        return _together(quota) if self._on_the_way_us and quota.limit * SPACED_US > quota.period_us else quota

    def on_the_way_us(self, quota: Quota) -> float:
        """The time that the first call of a burst of a quota has to arrive, which is 0 without a burst."""
        if type(quota) is not TokenBucket or quota.burst_floor < SPACED_US * quota.limit or not self._on_the_way_us:
            return 0.0
        return max(self._on_the_way_us, quota.burst_floor / quota.limit // 40.0)

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
        at_us = now_us
        if isinstance(quota, RollingWindow):
            at_us += ahead_us + (quota.part_us // 2.0 if self._on_the_way_us else 0.0)
        charged, last_quota, state = self._states.get(charge.bucket, _NO_CALLS)
        if charged is None or (last_quota is not quota and last_quota != quota):
            state = ALGORITHMS[type(quota)].fresh(at_us)
        elif state[1] > at_us:
            state = current(quota, state, at_us)
        if type(quota) is TokenBucket and quota.is_simple:
            if state[1] <= at_us:
                return self._taken_from_bucket(quota, state, at_us, charge.cost)
            level = admit(quota, state[0], 0.0, charge.cost)  # since the first call of a burst, nothing has drained
            if level is not None:
                return (level, state[1], 0, (), (), b""), 0.0
        after, wait_us, _ = ALGORITHMS[type(quota)].take(quota, state, at_us, charge.cost, AT_ONCE_US)
        return after, wait_us

    def _taken_from_bucket(
        self, quota: TokenBucket, state: State, at_us: float, cost: float
    ) -> tuple[State | None, float]:
        """``_taken``, faster, for a bucket that drains at one rate."""
        elapsed_us = at_us - state[1]
        level = admit(quota, state[0], elapsed_us, cost)
        if level is not None:
            if state[0] <= elapsed_us * quota.limit:  # the first one
                at_us += self.on_the_way_us(quota)
            return (level, at_us, 0, (), (), b""), 0.0
        refusal = refused(quota, state[0], elapsed_us, cost)
        if refusal is not None:
            return None, refusal[1]
        after, wait_us, _ = ALGORITHMS[TokenBucket].take(quota, state, at_us, cost, AT_ONCE_US)
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
    burst = 1.0 + quota.limit * TOGETHER_US / quota.period_us
    return quota if quota.burst >= burst else replace(quota, burst=burst)
