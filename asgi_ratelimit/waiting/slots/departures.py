"""What really leaves this process of each token bucket, so that no interval has more calls than the quota admits.

A store spaces slots, not calls: a caller that wakes late would leave close in front of the punctual one behind it. So
a call is taken a second time at the moment when it leaves, from a level that only this process uses. Windows need none
of this: a slot of a window is used within its window, or missed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ...algorithms import ALGORITHMS, State, admit, current, refused, reset_us
from ...decision import Charge
from ...quotas import TokenBucket

EXAMINED = 2
"""How many of the oldest levels are examined for each new one; those that have drained are dropped."""

AT_ONCE_US = 1.0
"""The longest wait of a take here: with any, a cost above the burst fits into an empty bucket."""

_take = ALGORITHMS[TokenBucket].take


class Departures:
    """The level of each bucket by what has left. Not thread-safe."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, tuple[TokenBucket, State]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def leave(self, charges: Sequence[Charge], now_us: float) -> float:
        """Record that a call leaves now, and return 0; or, if it may not yet, the microseconds until it may."""
        left: list[tuple[str, TokenBucket, State]] = []
        for charge in charges:
            quota = charge.quota
            if type(quota) is TokenBucket and charge.cost:  # a condition costs nothing
                state, wait_us = self._taken(quota, charge, now_us)
                if state is None or wait_us > 0.0:
                    return max(wait_us, AT_ONCE_US)
                left.append((charge.bucket, quota, state))
        for bucket, quota, state in left:
            if bucket not in self._states:
                self._drop_drained(now_us)
            self._states[bucket] = quota, state
        return 0.0

    def wait_us(self, charges: Sequence[Charge], now_us: float) -> float:
        """Microseconds until a call with these charges may leave."""
        buckets = [(each.quota, each) for each in charges if type(each.quota) is TokenBucket and each.cost]
        return max([self._taken(quota, charge, now_us)[1] for quota, charge in buckets], default=0.0)

    def _taken(self, quota: TokenBucket, charge: Charge, now_us: float) -> tuple[State | None, float]:
        """The state of a bucket after this charge has left, and the microseconds until it may."""
        last_quota, state = self._states.get(charge.bucket, (quota, None))
        if state is None or (last_quota is not quota and last_quota != quota):
            state = ALGORITHMS[TokenBucket].fresh(now_us)
        elif state[1] > now_us:
            state = current(quota, state, now_us)
        elapsed_us = now_us - state[1]
        if quota.is_simple and elapsed_us >= 0.0:
            level = admit(quota, state[0], elapsed_us, charge.cost)
            if level is not None:
                return (level, now_us, 0, (), (), b""), 0.0
            refusal = refused(quota, state[0], elapsed_us, charge.cost)
            if refusal is not None:
                return None, refusal[1]
        after, wait_us, _ = _take(quota, state, now_us, charge.cost, AT_ONCE_US)
        return after, wait_us

    def _drop_drained(self, now_us: float) -> None:
        for _ in range(min(EXAMINED, len(self._states))):
            bucket, (quota, state) = self._states.popitem(last=False)
            if reset_us(quota, state, now_us) > 0.0:
                self._states[bucket] = quota, state
