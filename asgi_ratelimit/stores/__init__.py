"""Where the states of buckets are kept: the protocol of a store, its kinds, and ``open_store``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..algorithms import settlement_of
from ..decision import Charge, Decision, Settlement, Take
from ..errors import ConfigurationError
from .memory import MemoryStore

if TYPE_CHECKING:
    from .redis import RedisStore

__all__ = ["MemoryStore", "RedisStore", "Store", "TakeSoon", "open_store", "settle", "take_soon_of"]


TakeSoon: TypeAlias = Callable[[Sequence[Take]], list[Decision] | Awaitable[list[Decision]]]
"""``take``: the decisions, or what is to be awaited for them."""


class Store(Protocol):
    """Whatever keeps the states of buckets and decides takes over them, each all or nothing."""

    in_process: bool
    """Whether no verb ever waits, so that synchronous code may call it without an event loop."""

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order; what one take books the next one sees."""
        ...

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken."""
        ...

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing."""
        ...

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        ...

    async def aclose(self) -> None:
        """Let go of all connections; a store that is used again afterwards opens new ones."""
        ...


SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
"""The schemes of URLs that lead to a Redis."""


def __getattr__(name: str) -> Any:
    """``RedisStore`` is imported at first use: the memory store needs no redis."""
    if name == "RedisStore":
        from .redis import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_store(url: str, **options: Any) -> Store:
    """The store that ``url`` names: ``memory://``, ``redis://``, ``unix://``, and for several hosts, parted by
    commas, ``redis+cluster://`` and ``redis+sentinel://``; over TLS ``rediss://`` and so on.

    ``options`` go to ``MemoryStore`` or ``RedisStore``. Nothing is connected yet.
    Raises ``ConfigurationError`` for any other scheme.
    """
    scheme, found, _ = url.partition("://")
    if found and scheme == "memory":
        return MemoryStore(**options)
    if found and scheme in SCHEMES:
        from .redis import RedisStore

        return RedisStore(url, **options)
    raise ConfigurationError(
        f"no store is known by the URL {url!r}: "
        '"memory://", "redis://localhost:6379/0", "rediss://user:password@host:6380/0", "unix:///run/redis.sock", '
        '"redis+cluster://host1:6379,host2:6379" or "redis+sentinel://host1:26379,host2:26379/mymaster"'
    )


def take_soon_of(store: Store) -> TakeSoon:
    """How to take from a store with no coroutine that is not needed: a kind that is not ours may have but ``take``."""
    take_soon: TakeSoon | None = getattr(store, "take_soon", None)
    return store.take if take_soon is None else take_soon


async def settle(store: Store, decision: Decision, actual: Sequence[float]) -> None:
    """Make a decision come to the ``actual`` cost of each of its charges, once: a second time does nothing.

    May raise ``StoreError``; then it may be tried again.
    """
    if decision.settled:
        return
    settlement = settlement_of(decision, actual)
    if settlement is not None:
        await store.settle(settlement)
    decision.settled = True
