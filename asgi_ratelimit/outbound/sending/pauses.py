"""Pauses: a pause that a service asks for is written to the store, and all processes that share the store observe it.

A pause is a bucket of its own, beside those of the quotas. While the key is paused, its level is above its burst by the
rest of the pause in microseconds, and it drains at a million units a second. Every take of the key has the condition
that this bucket has room, so its slot is not before the end of the pause. A pause begins with a best-effort take that
fills the bucket to the length of the pause. So if several processes begin a pause at the same time, the longest one
counts; they do not add up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from ...algorithms import reset_us
from ...decision import Charge, Condition, Decision, Take
from ...errors import StoreError
from ...quotas import SECOND_US, TokenBucket
from ...stores import MemoryStore, Store
from ...waiting import CallStore, Flow, take_all

PAUSE = TokenBucket(1000.0, 0.001, 1.0, name="pause")
"""A unit drains in a microsecond, so that levels are whole units, and pauses are exact."""


ROUNDING_US = 10.0
"""A slot that is booked for the end of a pause is at most so much before it: times are rounded."""

_NEVER = (-math.inf, -math.inf)


class Pauses:
    """The pauses of the keys of the limiter ``name``. ``now_us`` is a clock in microseconds that never jumps."""

    def __init__(self, store: Store, name: str, now_us: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._now_us = now_us
        self._begins_all = isinstance(store, MemoryStore)
        """Whether all pauses in the store were begun in this process."""
        self._store_ends: dict[str, tuple[float, float]] = {}
        """When pauses end, and as of when that is known, both by the time of the store."""
        self._ends: dict[str, float] = {}
        if self._begins_all:
            self._ends = _ends.setdefault(store, {}).setdefault(name, {})

    def take(self, charges: tuple[Charge, ...], max_wait: float) -> Take:
        """A take of these charges that waits for the end of the pause of its first key.

        The condition comes right after the first charge, because the last charge is that of a shared key, if there is
        one.
        """
        if self._begins_all and charges[0].key not in self._ends:
            return Take(charges, max_wait)
        first, *others = charges
        condition = Condition(PAUSE, first.key, 0, self._name)
        return Take((first, condition, *others), max_wait)

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
                yield CallStore(self._store, take_all(self._store, take))

    def note(self, decision: Decision) -> None:
        """Note the pauses that the store has found for the take of a decision."""
        for charge, state in zip(decision.charges, decision.stored):
            if charge.quota is PAUSE:
                self._note(charge.key, decision.now_us, reset_us(PAUSE, state, decision.now_us))

    def _note(self, key: str, store_us: float, left_us: float) -> None:
        if left_us > 0.0 or key in self._store_ends:
            _, seen_us = self._store_ends.get(key, _NEVER)
            if seen_us <= store_us:
                self._store_ends[key] = store_us + left_us, store_us
            for ended in [each for each, (end_us, _) in list(self._store_ends.items()) if end_us <= store_us]:
                self._store_ends.pop(ended, None)

    def ends_after(self, key: str, decision: Decision) -> bool:
        """Whether a pause ends after the slot of a decision of the store, by its time and its answers so far."""
        if decision.degraded:  # by another clock
            return False
        end_us, _ = self._store_ends.get(key, _NEVER)
        return end_us > decision.now_us + decision.wait_us + ROUNDING_US

    def __bool__(self) -> bool:
        """Whether any key may be paused."""
        return bool(self._ends) or not self._begins_all

    def each_left_us(self, keys: Sequence[str]) -> Flow[list[float]]:
        """Microseconds until the end of the pause of each key; without the store, only of pauses that began here."""
        try:
            return (yield from self._each_left_us(keys))
        except StoreError:
            return [self.left_here_us(key) for key in keys]

    def _each_left_us(self, keys: Sequence[str]) -> Flow[list[float]]:
        if self._begins_all and not any(key in self._ends for key in keys):
            return [0.0] * len(keys)
        conditions = tuple([Condition(PAUSE, key, 0, self._name) for key in keys])
        peeked: Decision = yield CallStore(self._store, self._store.peek(Take(conditions)))
        lefts_us = [state.retry_after * SECOND_US for state in peeked.states]
        for key, left_us in zip(keys, lefts_us):
            self._note(key, peeked.now_us, left_us)
        return lefts_us

    def has_begun(self, key: str, decision: Decision) -> Flow[bool]:
        """Whether a pause has begun that ends after the slot of a decision; without the store, one that began here."""
        try:
            (left_us,) = yield from self._each_left_us((key,))
        except StoreError:
            return self.left_here_us(key) > 0.0
        return left_us > 0.0 and (decision.degraded or self.ends_after(key, decision))

    def left_us(self, key: str) -> Flow[float]:
        """Microseconds until the end of a key's pause, as in ``each_left_us``."""
        (left_us,) = yield from self.each_left_us((key,))
        return left_us

    def left_here_us(self, key: str) -> float:
        """Microseconds until the end of a pause that began here; 0 or less if there is none."""
        return self.end_here_us(key) - self._now_us()

    def end_here_us(self, key: str) -> float:
        """When a pause ends that began here; 0 if there is none."""
        return self._ends.get(key, 0.0)


_ends: WeakKeyDictionary[Store, dict[str, dict[str, float]]] = WeakKeyDictionary()
"""When pauses end that have begun in this process, by store, name and key, for stores that no other process uses."""


def _with_burst(quota: TokenBucket, burst: float) -> TokenBucket:
    """The quota that fills the bucket up to a level. All such quotas share one stamp, so that they share the level."""
    filling = replace(quota, burst=burst)
    object.__setattr__(filling, "stamp", quota.stamp)
    return filling
