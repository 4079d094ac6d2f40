"""The registry of waiters: all callers of one store in this process wait in the same queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from ..stores import Store
from .concurrency import ConcurrencyLimit
from .forks import reset_in_child
from .queues import SlotQueues


@dataclass(slots=True)
class Waiters:
    """The callers that wait over one store: for booked slots, and in front of their own keys."""

    slots: SlotQueues = field(default_factory=SlotQueues)
    own_keys: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)


class _Registry:
    """The waiters of every store in use."""

    def __init__(self) -> None:
        self._waiters: WeakKeyDictionary[Store, Waiters] = WeakKeyDictionary()
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        self._lock = Lock()

    def waiters_of(self, store: Store) -> Waiters:
        with self._lock:
            waiters = self._waiters.get(store)
            if waiters is None:
                waiters = self._waiters[store] = Waiters()
            return waiters


_registry = _Registry()


def waiters_of(store: Store) -> Waiters:
    """The waiters of a store, the same for everyone who uses that object."""
    return _registry.waiters_of(store)
