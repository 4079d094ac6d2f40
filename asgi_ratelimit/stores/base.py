"""What every store is: the protocol, and decisions that are there at once."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Hashable, Sequence
from typing import Any, Protocol

from ..clock import Clock
from ..decision import Charge, Decision, Settled, Settlement, Take
from .call_observers import Observer
from .documents import Documents


class Decisions(list[Decision]):
    """Decisions that are there at once; ``await`` returns them too, so that every store can be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[Decision]]:
        return self
        yield  # a generator


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
