"""Rooms: where all callers of one store in this process wait, whoever made them wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from ..stores import Store
from .concurrency import Gates
from .forks import reset_in_child
from .queues import Queues


@dataclass(slots=True)
class Room:
    """The queues for slots of one store, and the gates in front of its callers' own keys."""

    queues: Queues = field(default_factory=Queues)
    gates: Gates = field(default_factory=Gates)


class _Rooms:
    """The rooms of all stores that are in use."""

    def __init__(self) -> None:
        self._rooms: WeakKeyDictionary[Store, Room] = WeakKeyDictionary()
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        self._lock = Lock()

    def of(self, store: Store) -> Room:
        with self._lock:
            room = self._rooms.get(store)
            if room is None:
                room = self._rooms[store] = Room()
            return room


_rooms = _Rooms()


def room_of(store: Store) -> Room:
    """The room of a store, the same for all who share that object."""
    return _rooms.of(store)
