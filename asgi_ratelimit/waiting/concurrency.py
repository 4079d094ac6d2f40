"""Callers that wait for each other: for a place under a limit of active callers, or for units that others give back."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

from ..clock import Clock, time_of
from ..decision import Charge, Take
from .drivers import Flow, WakeUp, reset_in_child
from .queues import Queues, Slot

T = TypeVar("T")


class ConcurrencyLimit(Queues):
    """At most ``places`` callers of each key at a time; the others wait, first come, first served."""

    def wait_and_enter(
        self, key: Any, clock: Clock | None, deadline_us: float, priority: float = 0.0
    ) -> Flow[Slot | None]:
        """Wait until the limit allows one more caller, and become active; ``None`` if the deadline comes first.

        Among the waiting callers, one with a higher ``priority`` goes first. Whoever gets a place has to ``leave`` it.
        """
        now_us, waiter = time_of(clock), self.join(key, clock, priority, deadline_us)
        try:
            while (place := self.slot_for(waiter, now_us())) is None and now_us() < deadline_us:
                yield waiter.wake_up
        finally:
            self.give_up(waiter)
        return place

    def leave(self, place: Slot) -> None:
        """Stop being active, so that the next caller can go."""
        self.add(place.key, place)


class ReturningUnits:
    """The callers that wait until units come back to a bucket, and the ``spend`` blocks that may return some.

    Thread-safe.
    """

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers and blocks."""
        self._lock = RLock()  # the garbage collector may enter in here, by closing a forgotten caller or body
        self._waiting: dict[str, WeakSet[WakeUp]] = {}
        """By bucket; a caller whose event loop was closed is forgotten with its task."""
        self._blocks: dict[int, Take] = {}
        """The takes of the blocks that are under way."""

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._waiting)

    def begin(self, take: Take) -> None:
        """Note that a block with this take is entered."""
        self._blocks[id(take)] = take

    def end(self, take: Take) -> None:
        """Note that the block with this take is over."""
        self._blocks.pop(id(take), None)

    def may_come(self, buckets: Collection[str]) -> bool:
        """Whether there is a block on any of these buckets."""
        return any(charge.bucket in buckets for take in list(self._blocks.values()) for charge in take.charges)

    def wake(self, charges: Sequence[Charge]) -> None:
        """Wake the callers of the buckets of these charges, to which units have come back."""
        with self._lock:
            for charge in charges if self else ():
                for wake_up in self._waiting.get(charge.bucket, ()):
                    wake_up.set(0.0)

    def retry(self, buckets: Collection[str], clock: Clock | None, attempt: Callable[[], Flow[T | float]]) -> Flow[T]:
        """The result of an attempt, which is made again while it returns a number: the time of the next one.

        That is in microseconds. It is made earlier if units come back to one of the buckets.
        """
        wake_up = WakeUp(clock)
        with self._lock:
            for bucket in buckets:
                self._waiting.setdefault(bucket, WeakSet()).add(wake_up)
        try:
            while True:
                wake_up.set(math.inf)
                result = yield from attempt()
                if not isinstance(result, float):
                    return result
                with self._lock:
                    if wake_up.at_us == math.inf:  # no units have come back since the attempt began
                        wake_up.set(result)
                yield wake_up
        finally:
            with self._lock:
                for bucket in buckets:
                    self._waiting.get(bucket, WeakSet()).discard(wake_up)
                    if not self._waiting.get(bucket):
                        self._waiting.pop(bucket, None)
