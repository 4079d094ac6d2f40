"""Stores keep the states of buckets and decide takes: the protocol, the two kinds, and ``open_store``."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from ..decision import Charge, Decision
from ..errors import ConfigurationError, shows_use
from .base import ByStore, Decisions, Settled, Settlement, Store, lease_settlement, settlements_of, undoing
from .memory import MemoryStore

__all__ = ["ByStore", "Decisions", "MemoryStore", "Settled", "Settlement", "Store", "lease_settlement", "undoing"]


def __getattr__(name: str) -> Any:
    """Import ``RedisStore`` at first use, because the memory store does not need redis."""
    if name != "RedisStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(".redis", __name__).RedisStore


@shows_use('open_store("redis://localhost:6379/0")')
def open_store(url: str, **options: Any) -> Store:
    """The store at ``url``: ``memory://``, ``redis://``, ``unix://``, ``redis+cluster://`` or ``redis+sentinel://``.

    Cluster and Sentinel take several hosts, separated by commas; ``rediss`` instead of ``redis`` means TLS. ``options``
    go to ``MemoryStore`` or ``RedisStore``. The store connects at first use.
    Raises ``ConfigurationError`` for any other URL, in which the password is hidden.
    """
    if url == "memory://":
        return MemoryStore(**options)
    return __getattr__("RedisStore")(url, **options)  # type: ignore[no-any-return]  # it is a store


def as_store(store: Store | str | None) -> Store:
    """The store of a ``store`` argument: a store, a URL, or ``None`` for this process's memory.

    Raises ``ConfigurationError`` for anything else, such as a client of redis-py, or a class.
    """
    if store is None:
        return MemoryStore()
    if isinstance(store, str):
        return open_store(store)
    if isinstance(store, type):
        raise ConfigurationError(f"store={store.__name__} lacks its call: store={store.__name__}()")
    for name in ("take", "peek", "settle", "reset", "aclose", "observe", "in_process", "documents", "clock"):
        if not hasattr(store, name):
            kind = f"a {type(store).__module__}.{type(store).__qualname__}"  # not itself, which may have a password
            right = 'store=MemoryStore(), store=RedisStore(client) or store="redis://localhost"'
            raise ConfigurationError(f"store is a store or a URL, not {kind}, which has no {name}: {right}")
    return store


def store_of_limits(store: Store | str | None, use: str) -> Store:
    """The store of limits that others have made, also by its URL; ``use`` is a right call.

    Raises ``ConfigurationError`` for ``None``, and for the URL of memory: that is a new store, which no limit has.
    """
    if store is None or store == "memory://":
        right = f'{use}, where store is the object that the RateLimitMiddleware has, or its URL, "redis://localhost"'
        raise ConfigurationError(f"{use.partition('(')[0]} needs the store of the limits, not {store!r}: {right}")
    return as_store(store)


def settle(
    store: Store, decision: Decision, actual: Sequence[float | None], *, is_unused: bool = False
) -> Coroutine[Any, Any, list[Settled]]:
    """Correct a decision to the ``actual`` cost of each of its charges; each charge is settled once.

    ``None`` leaves a charge for a later call. ``is_unused`` says that no call has gone at its slot. Raises
    ``StoreError`` if the store does not answer; it can then be called again.
    """
    return settle_all(store, settlements_of(decision, actual), is_unused=is_unused)


async def settle_all(store: Store, settlements: Sequence[Settlement], *, is_unused: bool = False) -> list[Settled]:
    """Send settlements to the store, and notify the callers of this process that wait for their buckets."""
    if not settlements:
        return []
    settled = await store.settle(settlements)
    units = [0.0 if is_unused else max(each.charge.cost - each.actual, 0.0) for each in settlements]
    _units_came_back(store, [(each.charge, back) for each, back in zip(settlements, units)])
    return settled


async def reset(store: Store, charges: Sequence[Charge]) -> None:
    """Forget the buckets of these charges, and notify the callers of this process that wait for them."""
    await store.reset(charges)
    _units_came_back(store, [(charge, math.inf) for charge in charges])


# Charges, and how many used units came back to their buckets; infinity for all of them.
CameBack: TypeAlias = Sequence[tuple[Charge, float]]

_listeners: ByStore[Callable[[CameBack], None]] = ByStore()


def when_units_come_back(store: Store, listener: Callable[[CameBack], None]) -> None:
    """Call ``listener`` with the units that come back by settlements and resets of this process. A store has just one.

    The listener must not refer to the store, which it would keep alive.
    """
    _listeners[store] = listener


def _units_came_back(store: Store, came_back: CameBack) -> None:
    listener = _listeners.get(store)
    if listener is not None:
        listener(came_back)
