"""Pauses: a pause that a service asks for is written to the store, and all processes that share the store observe it.

A pause is a bucket of its own, beside those of the quotas. Its level is the rest of the pause in milliseconds, and it
drains at a thousand a second. A pause begins with a best-effort take that fills the bucket to the length of the pause.
So if several processes begin one at the same time, the longest counts; they do not add up.
"""

from __future__ import annotations

import contextlib
import math

from ..decision import Charge, Decision, Take
from ..errors import StoreError
from ..quotas import SECOND_US, TokenBucket
from ..stores import Store
from ..waiting import CallStore, Flow

NAME = "pause"


class Pauses:
    """The pauses of the keys of the limiter ``name``."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def begin(self, key: str, seconds: float) -> Flow[None]:
        """Pause a key for this long, if it is not paused for longer already."""
        if seconds > 0.0:
            milliseconds = float(math.ceil(seconds * 1000.0))
            take = Take((self._charge(key, milliseconds),), best_effort=True)
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, self._store.take((take,)))

    def left_us(self, key: str) -> Flow[float]:
        """Microseconds until the end of a key's pause; 0 if the store is out."""
        try:
            peeked: Decision = yield CallStore(self._store, self._store.peek(Take((self._charge(key, 1.0),))))
        except StoreError:
            return 0.0
        return peeked.states[0].reset_after * SECOND_US

    def _charge(self, key: str, milliseconds: float) -> Charge:
        return Charge(_pause(milliseconds), key, milliseconds, self._name)


def _pause(milliseconds: float) -> TokenBucket:
    """The quota of a pause. Those of all lengths share one stamp, so that they share one level as it is."""
    quota = TokenBucket(1000.0, 1.0, milliseconds, name=NAME)
    object.__setattr__(quota, "stamp", _STAMP)
    return quota


_STAMP = TokenBucket(1000.0, 1.0, 1.0, name=NAME).stamp
