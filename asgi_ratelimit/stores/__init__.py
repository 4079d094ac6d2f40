"""Stores keep the states of buckets and decide takes: the protocol, the two kinds, and ``open_store``."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..decision import Charge, Decision, Settled, Settlement, settlements_of
from .base import ByStore, Decisions, Store
from .memory import MemoryStore
from .opening import open_store

if TYPE_CHECKING:
    from .redis import RedisStore

__all__ = [
    "ByStore",
    "Decisions",
    "MemoryStore",
    "RedisStore",
    "Store",
    "open_store",
    "reset",
    "settle",
    "settle_all",
    "when_units_come_back",
]


def __getattr__(name: str) -> Any:
    """Import ``RedisStore`` at first use, because the memory store does not need redis."""
    if name == "RedisStore":
        from .redis import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    if _listeners:
        units = [0.0 if is_unused else max(each.charge.cost - each.actual, 0.0) for each in settlements]
        _units_came_back(store, [(each.charge, back) for each, back in zip(settlements, units)])
    return settled


async def reset(store: Store, charges: Sequence[Charge]) -> None:
    """Forget the buckets of these charges, and notify the callers of this process that wait for them."""
    await store.reset(charges)
    _units_came_back(store, [(charge, math.inf) for charge in charges])


CameBack: TypeAlias = Sequence[tuple[Charge, float]]
"""Charges, and how many used units came back to their buckets; infinity for all of them."""

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
