"""Callers that wait for each other: for a place under a limit of active callers, or for units that others give back."""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from threading import RLock
from typing import TypeVar

from ..clock import Clock, time_of
from ..decision import Charge
from .drivers import Flow, NewWakeUp, Sleep, WakeUp, reset_in_child

T = TypeVar("T")

_order = attrgetter("order")


@dataclass(slots=True, eq=False)
class Place:
    """The place of one caller: among the active ones of its key, or among those that wait, or gone."""

    key: Hashable
    order: tuple[float, int]
    """By priority, the highest first, and then as the callers came."""
    wake_up: WakeUp | None = None
    loop: asyncio.AbstractEventLoop | None = field(default_factory=_get_running_loop)
    """The event loop of the caller; ``None`` for a thread."""
    is_active: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the caller can never go on, because its event loop is closed."""
        return self.loop is not None and self.loop.is_closed()


@dataclass(slots=True)
class _Callers:
    """The callers of one key."""

    active: set[Place] = field(default_factory=set)
    waiting: list[Place] = field(default_factory=list)

    def fill(self, limit: int) -> None:
        """Let as many callers go as there is room for."""
        while self.waiting and len(self.active) < limit:
            place = self.waiting.pop(0)
            if not place.is_dead:
                place.is_active = True
                self.active.add(place)
                if place.wake_up is not None:
                    place.wake_up.set(0.0)


class ConcurrencyLimit:
    """At most ``limit`` callers of each key at a time; the others wait, first come, first served.

    Thread-safe; its lock is never held during a wait.
    """

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._lock = RLock()  # the garbage collector may call leave() in here, by closing a forgotten caller
        self._callers: dict[Hashable, _Callers] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, key: Hashable) -> Place | None:
        """Become active if the limit allows it; return the place, which ``leave`` takes."""
        place = Place(key, (0.0, 0))
        with self._lock:
            callers = self._callers.setdefault(key, _Callers())
            if len(callers.active) >= self.limit:
                callers.active = {each for each in callers.active if not each.is_dead}
            callers.fill(self.limit)
            if len(callers.active) >= self.limit:
                return None
            callers.active.add(place)
        return place

    def wait_and_enter(
        self, key: Hashable, clock: Clock | None, deadline_us: float, priority: float = 0.0
    ) -> Flow[Place | None]:
        """Wait until the limit allows one more caller, and become active; ``None`` if the deadline comes first.

        Among the waiting callers, one with a higher ``priority`` goes first.
        """
        place = self.enter(key)
        if place is not None:
            return place
        wake_up: WakeUp = yield NewWakeUp(clock)
        wake_up.set(deadline_us)
        place = Place(key, (-priority, next(self._numbers)), wake_up)
        with self._lock:
            callers = self._callers.setdefault(key, _Callers())
            insort(callers.waiting, place, key=_order)
            callers.fill(self.limit)
        try:
            while not place.is_active:
                yield Sleep(wake_up)
                if not place.is_active and time_of(clock)() >= deadline_us:
                    self.leave(place)
                    return None
        except BaseException:
            self.leave(place)
            raise
        return place

    def ahead(self, key: Hashable) -> int:
        """How many callers are active or waiting."""
        with self._lock:
            callers = self._callers.get(key)
            return 0 if callers is None else len(callers.active) + len(callers.waiting)

    def leave(self, place: Place) -> None:
        """Stop being active, so that the next caller can go, or stop waiting; the place may already be gone."""
        with self._lock:
            callers = self._callers.get(place.key)
            if callers is None:
                return
            callers.active.discard(place)
            if place in callers.waiting:
                callers.waiting.remove(place)
            callers.fill(self.limit)
            if not callers.active and self._callers.get(place.key) is callers:
                del self._callers[place.key]


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
        self._waiting: dict[str, dict[WakeUp, None]] = {}
        self._blocks: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Whether any caller waits."""
        return bool(self._waiting)

    def begin(self, buckets: Iterable[str]) -> None:
        """Count a block on these buckets that is entered."""
        with self._lock:
            self._blocks.update(buckets)

    def end(self, buckets: Iterable[str]) -> None:
        """Count a block on these buckets that is over."""
        with self._lock:
            for bucket in buckets:
                self._blocks[bucket] -= 1
                if self._blocks[bucket] <= 0:
                    del self._blocks[bucket]

    def may_come(self, buckets: Iterable[str]) -> bool:
        """Whether there is a block on any of these buckets."""
        return any(bucket in self._blocks for bucket in buckets)

    def wake(self, charges: Sequence[Charge]) -> None:
        """Wake the callers of the buckets of these charges, to which units have come back."""
        if not self._waiting:
            return
        with self._lock:
            for charge in charges:
                for wake_up in list(self._waiting.get(charge.bucket, ())):
                    wake_up.set(0.0)

    def retry(self, buckets: Collection[str], clock: Clock | None, attempt: Callable[[], Flow[T | float]]) -> Flow[T]:
        """The result of an attempt, which is made again while it returns a number: the time of the next one.

        That is in microseconds. It is made earlier if units come back to one of the buckets.
        """
        wake_up: WakeUp = yield NewWakeUp(clock)
        with self._lock:
            for bucket in buckets:
                self._waiting.setdefault(bucket, {})[wake_up] = None
        try:
            while True:
                wake_up.set(math.inf)
                result = yield from attempt()
                if not isinstance(result, float):
                    return result
                with self._lock:
                    if wake_up.at_us == math.inf:  # no units have come back since the attempt began
                        wake_up.set(result)
                yield Sleep(wake_up)
        finally:
            with self._lock:
                for bucket in buckets:
                    self._waiting.get(bucket, {}).pop(wake_up, None)
                    if not self._waiting.get(bucket):
                        self._waiting.pop(bucket, None)
