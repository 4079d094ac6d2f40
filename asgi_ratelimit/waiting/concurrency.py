"""Gates: a few callers of each key are let in at a time, and the others wait in front, first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import RLock

from ..clock import Clock, time_of
from .drivers import Flow, NewAlarm, Sleep
from .forks import reset_in_child
from .wakeups import Alarm


@dataclass(slots=True)
class _Gate:
    inside: int = 0
    waiting: OrderedDict[Alarm, None] = field(default_factory=OrderedDict)
    """By their alarms, in the order in which they came."""


class Gates:
    """One gate for each key, with room for ``capacity`` callers. Thread-safe; its lock is never held for a wait."""

    def __init__(self, capacity: int = 1) -> None:
        self._capacity = capacity
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget everybody."""
        self._lock = RLock()  # whoever is forgotten leaves when memory is tidied up, which may be in here
        self._gates: dict[Hashable, _Gate] = {}

    def __len__(self) -> int:
        return len(self._gates)

    def enter(self, key: Hashable, alarm: Alarm | None = None) -> bool:
        """Go in if there is room; where there is none, wait in front, if an ``alarm`` is given to be told by."""
        with self._lock:
            gate = self._gates.setdefault(key, _Gate())
            if gate.inside < self._capacity:
                gate.inside += 1
                return True
            if alarm is not None:
                gate.waiting[alarm] = None
            return False

    def is_waiting(self, key: Hashable, alarm: Alarm) -> bool:
        """Whether the caller with this alarm has not been let in yet."""
        with self._lock:
            return alarm in self._gates[key].waiting

    def ahead(self, key: Hashable) -> int:
        """How many callers are inside or in front."""
        with self._lock:
            gate = self._gates.get(key)
            return gate.inside + len(gate.waiting) if gate else 0

    def leave(self, key: Hashable, alarm: Alarm | None = None) -> None:
        """Make room for the next, or wait no longer."""
        with self._lock:
            gate = self._gates[key]
            if alarm is not None and alarm in gate.waiting:
                del gate.waiting[alarm]
            elif gate.waiting:
                following = next(iter(gate.waiting))
                del gate.waiting[following]
                following.set(0.0)
            else:
                gate.inside -= 1
            if not gate.inside:
                del self._gates[key]


def pass_gate(gates: Gates, key: Hashable, clock: Clock | None, deadline_us: float) -> Flow[bool]:
    """Wait until there is room at a gate, and go in; ``False`` where the deadline has come before."""
    if gates.enter(key):
        return True
    alarm: Alarm = yield NewAlarm(clock)
    alarm.set(deadline_us)
    if gates.enter(key, alarm):
        return True
    try:
        while gates.is_waiting(key, alarm):
            yield Sleep(alarm)
            if time_of(clock)() >= deadline_us and gates.is_waiting(key, alarm):
                gates.leave(key, alarm)
                return False
    except BaseException:
        gates.leave(key, alarm)
        raise
    return True
