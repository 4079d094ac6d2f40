"""What every store is: the protocols, decisions that are there at once, reports of calls, and values by store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from ..clock import Clock
from ..decision import Charge, Decision, Settled, Settlement, Take
from ..logs import FailureLog

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
        ...

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        ...

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        ...

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        ...

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        ...

    async def now_us(self) -> float:
        """The time by which they expire, in microseconds since the Unix epoch."""
        ...

    async def aclose(self) -> None:
        """Close the connection of the running event loop, if there is one; a later call opens it again."""
        ...


class Store(Protocol):
    """Keeps the states of buckets, and decides takes, each all or nothing.

    Limiters need no more than these members. ``in_process`` says that no method ever waits, so that code without
    ``async`` can call it without an event loop.
    """

    in_process: bool

    @property
    def clock(self) -> Clock | None:
        """The clock that the store decides by; ``None`` for that of a server."""
        ...

    @property
    def documents(self) -> Documents:
        """Small texts beside the buckets, which all processes on the store share."""
        ...

    @property
    def place(self) -> Hashable:
        """Equal for stores that share their buckets."""
        return id(self)

    def take(self, takes: Sequence[Take]) -> Decisions | Awaitable[list[Decision]]:
        """One decision for each take, in order; each take sees what the ones before it have booked.

        Never raises ``StoreError``: without its server, the store decides as ``on_error`` says.
        """
        ...

    async def peek(self, take: Take) -> Decision:
        """The decision that ``take`` would get now; nothing is taken."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Give back units that were charged in excess, or debit missing ones; each settlement once."""
        ...

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        ...

    async def aclose(self) -> None:
        """Close all connections; a store that is used again afterwards opens new ones."""
        ...

    def observe(self, observer: Observer) -> None:
        """Call ``observer.store_called`` after each call to a server, for as long as the program refers to it."""
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
        ...


class Observers:
    """The observers of one store, which are held weakly, if they can be. An exception of one is logged."""

    def __init__(self) -> None:
        self.references: list[Callable[[], object]] = []
        """The observers that were added; some of them may be gone."""
        self._log = FailureLog()
        self._lock = Lock()

    def add(self, observer: Observer) -> None:
        """Call an observer from now on, once for each call, however often it is added."""
        with self._lock:
            others = [each for each in self.references if each() is not None and each() is not observer]
            self.references = [*others, reference(observer)]

    def report(self, call: StoreCall) -> None:
        """A call has ended."""
        for each in self.references:
            observer = each()
            if observer is not None:
                try:
                    observer.store_called(call)  # type: ignore[attr-defined]  # it is an observer
                except Exception as error:  # noqa: BLE001  # it is the user's, and may raise anything
                    self._log.report(f"the hook {observer!r} failed", error, id(observer))


class ByStore(Generic[T]):
    """Values by store. A store need be neither hashable nor comparable; it is held weakly, if it can be."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Callable[[], object], T]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def get(self, store: Any) -> T | None:
        """The value of a store, if it has one."""
        entry = self._values.get(id(store))
        return None if entry is None or entry[0]() is not store else entry[1]

    def values(self) -> list[T]:
        """The values of all stores that live."""
        return [value for reference, value in list(self._values.values()) if reference() is not None]

    def __setitem__(self, store: Any, value: T) -> None:
        self._values[id(store)] = reference(store, partial(self._remove, id(store))), value

    def _remove(self, identity: int, reference: Callable[[], object]) -> None:
        entry = self._values.get(identity)
        if entry is not None and entry[0] is reference:  # not that of a new store at the same address
            del self._values[identity]


before_closing: ByStore[Callable[[], Awaitable[None]]] = ByStore()
"""A function that is awaited before a store closes its connections, if it has any; it must not refer to the store."""


def reference(store: Any, when_gone: Callable[[Any], None] | None = None) -> Callable[[], object]:
    """A weak reference to a store, or a strong one to a store of a class without weak references."""
    try:
        return ref(store, when_gone)
    except TypeError:
        return lambda: store
