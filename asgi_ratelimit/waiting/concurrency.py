"""A limit on how many callers of each key are active at a time: the others wait, first come, first served.

A caller whose event loop is closed can never leave. So a new caller drops all such callers, and lets the next ones go.
So does a look once a second, while callers of several event loops wait. A loop that is only stopped may run again, so
its callers keep their places.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import RLock

from ..clock import Clock, time_of
from . import background_loop
from .flow_drivers import Flow, NewWakeUp, Sleep
from .forks import reset_in_child
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
    """The callers of one key. Each step takes as long for many callers as for few, while no event loop is closed."""

    active: set[Place] = field(default_factory=set)
    waiting: dict[float, OrderedDict[Place, None]] = field(default_factory=dict)
    """The waiting callers by priority, in the order in which they came."""
    loops: set[asyncio.AbstractEventLoop | None] = field(default_factory=set)
    """The event loops of the callers that have waited or become active; ``None`` if threads have waited."""

    @property
    def count(self) -> int:
        """How many are active or waiting."""
        return len(self.active) + sum(map(len, self.waiting.values()))

    def begin(self, place: Place) -> None:
        """Let this caller be active."""
        self.active.add(place)
        if place.loop is not None:
            self.loops.add(place.loop)

    def wait(self, place: Place) -> None:
        """Let this caller wait behind all callers of its priority."""
        self.waiting.setdefault(place.priority, OrderedDict())[place] = None
        self.loops.add(place.loop)

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

    def drop_dead(self) -> None:
        """Drop callers whose event loop is closed, if that keeps others waiting.

        Dropping one may free its task, which then calls ``leave`` from here, so all loops are over copies.
        """
        closed = [loop for loop in list(self.loops) if loop is not None and loop.is_closed()]
        self.loops.difference_update(closed)
        dead = [place for place in list(self.active) if place.is_dead] if closed else []
        if dead:
            dead += [place for queue in list(self.waiting.values()) for place in list(queue) if place.is_dead]
        for place in dead:
            self.discard(place)

    def fill(self, limit: int) -> None:
        """Let as many callers go as there is room for, those of the highest priority first."""
        while self.waiting and len(self.active) < limit:
            following = next(iter(self.waiting[max(self.waiting)]))
            self.discard(following)
            if not following.is_dead:
                self.begin(following)
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
        self._mixed: set[Hashable] = set()
        """The keys whose callers wait on several event loops."""

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
        is_newly_mixed = False
        with self._lock:
            callers = self._callers.get(place.key) or _Callers()
            if len(callers.active) >= self.limit:
                callers.drop_dead()
                callers.fill(self.limit)
            self._callers[place.key] = callers
            if len(callers.active) < self.limit:
                callers.begin(place)
                return True
            if place.wake_up is not None:
                callers.wait(place)
                if len(callers.loops) > 1 and place.key not in self._mixed:
                    self._mixed.add(place.key)
                    is_newly_mixed = True
        if is_newly_mixed:
            background_loop.watch(self)
        return False

    def drop_dead(self) -> bool:
        """Let those go who wait for callers of closed event loops; return whether callers of several loops wait."""
        with self._lock:
            for key in list(self._mixed):
                callers = self._callers.get(key)
                if callers is None or not callers.waiting:
                    self._mixed.discard(key)
                else:
                    self._refill(key, callers)
            return bool(self._mixed)

    def _is_waiting(self, place: Place) -> bool:
        with self._lock:
            callers = self._callers.get(place.key)
            return callers is not None and callers.is_waiting(place)

    def ahead(self, key: Hashable) -> int:
        """How many callers are active or waiting."""
        with self._lock:
            callers = self._callers.get(key)
            if callers is None:
                return 0
            self._refill(key, callers)
            return callers.count

    def leave(self, place: Place) -> None:
        """Stop being active, so that the next caller can go, or stop waiting; the place may already be gone."""
        with self._lock:
            callers = self._callers.get(place.key)
            if callers is None:
                return
            callers.discard(place)
            callers.fill(self.limit)
            self._forget_if_empty(place.key, callers)

    def _refill(self, key: Hashable, callers: _Callers) -> None:
        """Let others go in place of callers of closed event loops."""
        callers.drop_dead()
        callers.fill(self.limit)
        self._forget_if_empty(key, callers)

    def _forget_if_empty(self, key: Hashable, callers: _Callers) -> None:
        if not callers.active and self._callers.get(key) is callers:
            del self._callers[key]
