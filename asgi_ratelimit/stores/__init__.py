"""Stores keep the states of buckets and decide takes: the protocol, the two kinds, and ``open_store``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..argument_errors import shows_use
from ..decision import Charge, Decision, Settled, Settlement, settlements_of
from ..errors import ConfigurationError
from .base import Decisions, Store
from .by_store import ByStore
from .memory import MemoryStore
from .urls import SCHEMES, shown

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


@shows_use('open_store("redis://localhost:6379/0")')
def open_store(url: str, **options: Any) -> Store:
    """The store at ``url``: ``memory://``, ``redis://``, ``unix://``, ``redis+cluster://`` or ``redis+sentinel://``.

    Cluster and Sentinel take several hosts, separated by commas; ``rediss`` instead of ``redis`` means TLS. ``options``
    go to ``MemoryStore`` or ``RedisStore``. The store connects at first use.
    Raises ``ConfigurationError`` for any other URL, in which the password is hidden.
    """
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    if url == "memory://":
        return MemoryStore(**options)
    if separator and scheme in SCHEMES:
        from .redis import RedisStore

        return RedisStore(url, **options)
    raise ConfigurationError(
        f"{shown(url)} is not the URL of a store{_hint_of(url)}: "
        '"memory://", "redis://localhost:6379/0", "rediss://user:password@host:6380/0", "unix:///run/redis.sock", '
        '"redis+cluster://host1:6379,host2:6379" or "redis+sentinel://host1:26379,host2:26379/mymaster"'
    )


def _hint_of(url: object) -> str:
    """What is wrong with a URL, if that is clear and its error does not show it."""
    if not isinstance(url, str):
        return ""
    scheme, colon, _ = url.partition(":")
    if colon and scheme in SCHEMES:
        return f", two slashes follow its colon, {scheme}://"
    return ", it begins with a space" if url[:1].isspace() else ""


async def settle(
    store: Store, decision: Decision, actual: Sequence[float | None], *, is_unused: bool = False
) -> list[Settled]:
    """Correct a decision to the ``actual`` cost of each of its charges; each charge is settled once.

    ``None`` leaves a charge for a later call. ``is_unused`` says that no call has gone at its slot. Raises
    ``StoreError`` if the store does not answer; it can then be called again.
    """
    return await settle_all(store, settlements_of(decision, actual), is_unused=is_unused)


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
