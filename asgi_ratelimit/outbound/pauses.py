"""Pauses of a key, which a service asks for: all processes that share the store observe them.

A pause is a bucket of its own, beside those of the quotas. While the key is paused, its level is above its burst by
the rest of the pause in microseconds, and it drains at a million units a second. Every take of the key has the
condition that this bucket has room, so its slot is not before the end of the pause. A pause begins with a best-effort
take that fills the bucket to the length of the pause. So if several processes begin a pause at the same time, the
longest one counts; they do not add up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

from ..decision import Charge, Condition, Decision, Take
from ..errors import StoreError
from ..quotas import SECOND_US, TokenBucket
from ..stores import MemoryStore, Store
from ..waiting.drivers import CallStore, Flow

# A unit drains in a microsecond, so that levels are whole units, and pauses are exact.
PAUSE = TokenBucket(1000.0, 0.001, 1.0, name="pause")

# Times are rounded: a slot that is booked for the end of a pause may be this much before it.
ROUNDING_US = 10.0


class Pauses:
    """The pauses of the keys of the limiter ``name``. ``now_us`` is a clock in microseconds that never jumps."""

    def __init__(self, store: Store, name: str, now_us: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._now_us = now_us
        # Whether all pauses in the store were begun in this process.
        self._begins_all = isinstance(store, MemoryStore)
        self._ends = _ends.setdefault(store, {}).setdefault(name, {})

    def take(self, take: Take, *, is_repeated: bool = False) -> Take:
        """The same take, which waits for the end of the pause of its first key.

        One that ``is_repeated`` until it fits observes a pause that begins meanwhile, too. The condition comes right
        after the first charge, because the last charge is that of a shared key, if there is one.
        """
        first, *others = take.charges
        if self._begins_all and not is_repeated and first.key not in self._ends:
            return take
        return Take((first, Condition(PAUSE, first.key, 0, self._name), *others), take.max_wait)

    def begin(self, key: str, seconds: float, quota: TokenBucket = PAUSE) -> Flow[None]:
        """Pause a key for this long, if it is not already paused for longer; ``quota`` differs only in its name."""
        if seconds > 0.0:
            now_us = self._now_us()
            for ended in [paused for paused, end_us in list(self._ends.items()) if end_us <= now_us]:
                self._ends.pop(ended, None)
            self._ends[key] = max(self._ends.get(key, 0.0), now_us + seconds * SECOND_US)
            level = math.ceil(seconds * SECOND_US) + PAUSE.burst
            take = Take((Charge(_with_burst(quota, level), key, level, self._name),), best_effort=True)
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, decision_on(self._store, take))

    def has_begun(self, key: str, decision: Decision) -> Flow[bool]:
        """Whether a pause has begun that ends after a decision's slot; a degraded one was made by another clock."""
        now_us, left_us = yield from self._peek(key)
        slot_us = decision.now_us + decision.wait_us + ROUNDING_US
        return left_us > 0.0 and (decision.degraded or now_us + left_us > slot_us)

    def left_us(self, key: str) -> Flow[float]:
        """Microseconds until the end of the pause of a key; without the store, of one that began here."""
        return (yield from self._peek(key))[1]

    def _peek(self, key: str) -> Flow[tuple[float, float]]:
        """The time of the store, and what is left of the pause of a key; if only this process knows, at any time."""
        if not self._begins_all or key in self._ends:
            with contextlib.suppress(StoreError):
                take = Take((Condition(PAUSE, key, 0, self._name),))
                peeked: Decision = yield CallStore(self._store, self._store.peek(take))
                return peeked.now_us, peeked.retry_after * SECOND_US
        return math.inf, self.left_here_us(key)

    def left_here_us(self, key: str) -> float:
        """Microseconds until the end of a pause that began here; 0 or less if there is none."""
        return self._ends.get(key, 0.0) - self._now_us()


# When pauses end that have begun in this process, by store, name and key.
_ends: WeakKeyDictionary[Store, dict[str, dict[str, float]]] = WeakKeyDictionary()


def _with_burst(quota: TokenBucket, burst: float) -> TokenBucket:
    """The quota that fills the bucket up to a level. All such quotas share one stamp, so that they share the level."""
    filling = replace(quota, burst=burst)
    object.__setattr__(filling, "stamp", quota.stamp)
    return filling


async def decision_on(store: Store, take: Take) -> Decision:
    """The decision of a store on a take, which it gets only when this runs, on an event loop."""
    return (await store.take((take,)))[0]
