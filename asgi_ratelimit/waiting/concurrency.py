"""A limit on how many callers of each key are active at a time: the others wait, first come, first served.

A caller whose event loop was closed can never leave: the next one that comes drops it.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import RLock

from ..clock import Clock, time_of
from .background_loop import reset_in_child
from .flow_drivers import Flow, NewWakeUp, Sleep
from .wakeups import WakeUp


@dataclass(slots=True, eq=False)
class Place:
    """The place of one caller: among the active ones of its key, or in the queue, or gone."""

    key: Hashable
    loop: asyncio.AbstractEventLoop | None
    """The event loop of the caller; ``None`` for a thread."""
    priority: float = 0.0
    wake_up: WakeUp | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the caller can never go on."""
        return self.loop is not None and self.loop.is_closed()


@dataclass(slots=True)
class _Callers:
    """The callers of one key. Each step takes as long for many callers as for few."""

    active: set[Place] = field(default_factory=set)
    waiting: dict[float, OrderedDict[Place, None]] = field(default_factory=dict)
    """The waiting callers by priority, in the order in which they came."""

    @property
    def count(self) -> int:
        """How many are active or waiting."""
        return len(self.active) + sum(map(len, self.waiting.values()))

    def wait(self, place: Place) -> None:
        """Let this caller wait behind all callers of its priority."""
        self.waiting.setdefault(place.priority, OrderedDict())[place] = None

    def is_waiting(self, place: Place) -> bool:
        """Whether this caller waits."""
        return place in self.waiting.get(place.priority, ())

    def discard(self, place: Place) -> None:
        """Forget a caller that is active, waits, or is already gone."""
        self.active.discard(place)
        if self.is_waiting(place):
            queue = self.waiting[place.priority]
            del queue[place]
            if not queue:
                del self.waiting[place.priority]

    def fill(self, limit: int) -> None:
        """Let as many callers go as there is room for, those of the highest priority first."""
        while self.waiting and len(self.active) < limit:
            following = next(iter(self.waiting[max(self.waiting)]))
            self.discard(following)
            if not following.is_dead:
                self.active.add(following)
                if following.wake_up is not None:
                    following.wake_up.set(0.0)


class ConcurrencyLimit:
    """At most ``limit`` callers of each key at a time. Thread-safe; its lock is never held during a wait."""

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._lock = RLock()  # the garbage collector may call leave() in here, by closing a forgotten caller
        self._callers: dict[Hashable, _Callers] = {}

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, key: Hashable) -> Place | None:
        """Become active if the limit allows it; return the place, which ``leave`` takes."""
        place = Place(key, _get_running_loop())
        return place if self._enter(place) else None

    def wait_and_enter(
        self, key: Hashable, clock: Clock | None, deadline_us: float, priority: float = 0.0
    ) -> Flow[Place | None]:
        """Wait until the limit allows one more caller, and become active; ``None`` if the deadline comes first.

        Among the waiting callers, one with a higher ``priority`` goes first.
        """
        place = Place(key, _get_running_loop(), priority)
        if self._enter(place):
            return place
        wake_up: WakeUp = yield NewWakeUp(clock)
        wake_up.set(deadline_us)
        place.wake_up = wake_up
        try:
            if self._enter(place):
                return place
            while self._is_waiting(place):
                yield Sleep(wake_up)
                if time_of(clock)() >= deadline_us and self._is_waiting(place):
                    self.leave(place)
                    return None
        except BaseException:
            self.leave(place)
            raise
        return place

    def _enter(self, place: Place) -> bool:
        """Become active if the limit allows it. If it does not, and the place has a wake-up, wait in the queue."""
        with self._lock:
            callers = self._callers.setdefault(place.key, _Callers())
            if len(callers.active) >= self.limit:
                for dead in [each for each in callers.active if each.is_dead]:
                    callers.discard(dead)
                callers.fill(self.limit)
            if len(callers.active) < self.limit:
                callers.active.add(place)
                return True
            if place.wake_up is not None:
                callers.wait(place)
        return False

    def _is_waiting(self, place: Place) -> bool:
        with self._lock:
            callers = self._callers.get(place.key)
            return callers is not None and callers.is_waiting(place)

    def ahead(self, key: Hashable) -> int:
        """How many callers are active or waiting."""
        with self._lock:
            callers = self._callers.get(key)
            return 0 if callers is None else callers.count

    def leave(self, place: Place) -> None:
        """Stop being active, so that the next caller can go, or stop waiting; the place may already be gone."""
        with self._lock:
            callers = self._callers.get(place.key)
            if callers is None:
                return
            callers.discard(place)
            callers.fill(self.limit)
            if not callers.active and self._callers.get(place.key) is callers:
                del self._callers[place.key]
