"""Pauses: a key that a service has asked to wait is told so in the store, and all processes that share it wait.

A pause is a bucket of its own, beside those of the quotas. Its level is what is left of the pause, in milliseconds, and
drains at a thousand a second. To begin a pause is a best effort to fill it to that length, so of several that are asked
for at once, by several processes, the longest holds; they do not add up.
"""

from __future__ import annotations

import contextlib
import math

from ..decision import Charge, Decision, Take
from ..errors import StoreError
from ..quotas import SECOND_US, TokenBucket
from ..stores import Store
from ..waiting import Ask, Flow

NAME = "pause"


class Pauses:
    """The pauses of the keys of one limiter, by its ``name``."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def begin(self, key: str, seconds: float) -> Flow[None]:
        """Have everybody wait for so long, if they do not wait for longer already."""
        if seconds > 0.0:
            milliseconds = float(math.ceil(seconds * 1000.0))
            take = Take((self._charge(key, milliseconds),), best_effort=True)
            with contextlib.suppress(StoreError):
                yield Ask(self._store, self._store.take((take,)))

    def left_us(self, key: str) -> Flow[float]:
        """Microseconds that a key still has to wait; 0 where nobody knows."""
        try:
            looked: Decision = yield Ask(self._store, self._store.peek(Take((self._charge(key, 1.0),))))
        except StoreError:
            return 0.0
        return looked.states[0].reset_after * SECOND_US

    def _charge(self, key: str, milliseconds: float) -> Charge:
        return Charge(TokenBucket(1000.0, 1.0, milliseconds, name=NAME), key, milliseconds, self._name)
