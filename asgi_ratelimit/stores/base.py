"""What every store is: the protocols, decisions that are there at once, reports of calls, and values by store."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

from ..clock import Clock
from ..decision import Charge, Decision, Settled, Settlement, Take

T = TypeVar("T")


class Decisions(list[Decision]):
    """Decisions that are there at once; ``await`` returns them too, so that every store can be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[Decision]]:
        return self
        yield  # a generator


class Documents(Protocol):
    """Values of bytes by name, and parts of a name, each with a content of its own.

    ``seconds`` is how long a value lives; ``None`` is forever. Each method raises ``StoreError`` if the store does not
    answer.
    """

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""

    async def now_us(self) -> float:
        """The time by which they expire, in microseconds since the Unix epoch."""

    async def aclose(self) -> None:
        """Close the connection of the running event loop, if there is one; a later call opens it again."""


class Store(Protocol):
    """Keeps the states of buckets, and decides takes, each all or nothing.

    Limiters need no more than these members. ``in_process`` says that no method ever waits, so that code without
    ``async`` can call it without an event loop.
    """

    in_process: bool

    @property
    def clock(self) -> Clock | None:
        """The clock that the store decides by; ``None`` for that of a server."""

    @property
    def documents(self) -> Documents:
        """Small texts beside the buckets, which all processes on the store share."""

    def take(self, takes: Sequence[Take]) -> Decisions | Awaitable[list[Decision]]:
        """One decision for each take, in order; each take sees what the ones before it have booked.

        Never raises ``StoreError``: without its server, the store decides as ``on_error`` says.
        """

    async def peek(self, take: Take) -> Decision:
        """The decision that ``take`` would get now; nothing is taken."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Give back units that were charged in excess, or debit missing ones; each settlement once."""

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""

    async def aclose(self) -> None:
        """Close all connections; a store that is used again afterwards opens new ones."""

    def observe(self, observer: Observer) -> None:
        """Call ``observer.store_called`` after each call to a server, once, however often it is added."""
        del observer  # a store in memory calls no server


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of a store to its server: ``size`` takes and other actions together, which took ``seconds``.

    ``store`` is the prefix of the store's keys. ``error`` is the reason why the call failed, if it did. ``is_out`` says
    whether the store, or a node of it, has been out since then, and ``ledger`` is the number of entries in its outage
    ledger.
    """

    store: str
    size: int
    seconds: float
    error: Exception | None
    is_out: bool
    ledger: int


class Observer(Protocol):
    """Something that is called with each call of a store, in the event loop, so it must not block."""

    def store_called(self, call: StoreCall, /) -> object:
        """A call has ended."""


class ByStore(WeakKeyDictionary[Any, T]):
    """Values by store, each for as long as its store lives. Threads share them."""

    __hash__ = object.__hash__

    def __init__(self) -> None:
        super().__init__()
        self._unlock()
        os.register_at_fork(after_in_child=self._unlock)

    def _unlock(self) -> None:
        self._lock = RLock()

    def made(self, store: Any, make: Callable[[Any], T]) -> T:
        """The value of a store, which is made unless another thread has just done so."""
        with self._lock:
            value = self.get(store)
            if value is None:
                value = self[store] = make(store)
            return value


def living(values: WeakKeyDictionary[Any, T]) -> list[tuple[Any, T]]:
    """All keys that live, and their values; other threads may add some meanwhile."""
    keys = [each() for each in values.keyrefs()]
    return [(key, values[key]) for key in keys if key is not None]


def reference(target: Any) -> Callable[[], object]:
    """A weak reference, or a strong one to an object of a class without weak references."""
    try:
        return ref(target)
    except TypeError:
        return lambda: target
