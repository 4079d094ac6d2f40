"""A limit on how many callers of each key are active at a time: the others wait, first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import RLock

from ..clock import Clock, time_of
from .drivers import Flow, NewWakeUp, Sleep
from .forks import reset_in_child
from .wakeups import WakeUp


@dataclass(slots=True)
class _Callers:
    """The callers of one key."""

    active: int = 0
    waiting: OrderedDict[WakeUp, float] = field(default_factory=OrderedDict)
    """Their wake-ups, in the order in which they came, with their priorities."""
    dropped: set[WakeUp] = field(default_factory=set)
    """Those that were dropped, because their event loop is closed."""

    def pop_next(self) -> WakeUp | None:
        """Remove and return the first of those of the highest priority; those whose event loop is closed are gone."""
        while self.waiting:
            has_priorities = any(self.waiting.values())
            following = max(self.waiting, key=self.waiting.__getitem__) if has_priorities else next(iter(self.waiting))
            del self.waiting[following]
            if not following.is_dead:
                return following
            self.dropped.add(following)
        return None


class ConcurrencyLimit:
    """At most ``limit`` callers of each key at a time. Thread-safe; its lock is never held during a wait."""

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all callers."""
        self._lock = RLock()  # the garbage collector may close a forgotten caller, and so call leave(), in here
        self._callers: dict[Hashable, _Callers] = {}

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, key: Hashable, wake_up: WakeUp | None = None, priority: float = 0.0) -> bool:
        """Become active if the limit allows it. If it does not, and ``wake_up`` is given, wait in the queue."""
        with self._lock:
            callers = self._callers.setdefault(key, _Callers())
            if callers.active < self._limit:
                callers.active += 1
                return True
            if wake_up is not None:
                callers.waiting[wake_up] = priority
            return False

    def wait_and_enter(
        self, key: Hashable, clock: Clock | None, deadline_us: float, priority: float = 0.0
    ) -> Flow[bool]:
        """Wait until the limit allows one more caller, and become active; ``False`` if the deadline comes first.

        Of those that wait, one of a higher ``priority`` goes first.
        """
        if self.enter(key):
            return True
        wake_up: WakeUp = yield NewWakeUp(clock)
        wake_up.set(deadline_us)
        if self.enter(key, wake_up, priority):
            return True
        try:
            while self._is_waiting(key, wake_up):
                yield Sleep(wake_up)
                if time_of(clock)() >= deadline_us and self._is_waiting(key, wake_up):
                    self.leave(key, wake_up)
                    return False
        except BaseException:
            self.leave(key, wake_up)
            raise
        return True

    def _is_waiting(self, key: Hashable, wake_up: WakeUp) -> bool:
        with self._lock:
            return wake_up in self._callers[key].waiting

    def ahead(self, key: Hashable) -> int:
        """How many callers are active or waiting."""
        with self._lock:
            callers = self._callers.get(key)
            return callers.active + len(callers.waiting) if callers else 0

    def leave(self, key: Hashable, wake_up: WakeUp | None = None) -> None:
        """Stop being active, so that the next caller can go; or, if ``wake_up`` is still in the queue, stop waiting."""
        with self._lock:
            callers = self._callers.get(key)
            if callers is None or wake_up in callers.dropped:
                return
            if wake_up is not None and wake_up in callers.waiting:
                del callers.waiting[wake_up]
            else:
                following = callers.pop_next()
                if following is None:
                    callers.active -= 1
                else:
                    following.set(0.0)
            if not callers.active:
                del self._callers[key]
