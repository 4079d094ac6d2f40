"""Checks ``store`` arguments, and finds the stores that they stand for."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError
from . import MemoryStore, Store, open_store
from .urls import shown

_METHODS = ("take", "peek", "settle", "reset", "aclose")


def checked_store(store: Store | str | None) -> Store | str | None:
    """A store, a URL, or ``None``; ``ConfigurationError`` for anything else, such as a client of redis-py."""
    if store is None or isinstance(store, str):
        return store
    given: Any = store
    if isinstance(given, type):
        raise ConfigurationError(f"store={given.__name__} lacks its call: store={given.__name__}()")
    if type(given).__module__.partition(".")[0] == "redis":
        name = type(given).__name__
        raise ConfigurationError(f"store is a store or a URL, not a client, {name}: store=RedisStore(client)")
    missing = [f"{name}()" for name in _METHODS if not callable(getattr(given, name, None))]
    missing.extend([] if hasattr(given, "in_process") else ["in_process"])
    if missing:
        raise ConfigurationError(
            f"store is a store or a URL, not {shown(given)}, which has no {missing[0]}: store=MemoryStore(), or "
            'store="redis://localhost"'
        )
    return store


def as_store(store: Store | str | None) -> Store:
    """The store of a ``store`` argument: a store, a URL, or ``None`` for this process's memory.

    Raises ``ConfigurationError`` for anything else.
    """
    store = checked_store(store)
    if store is None:
        return MemoryStore()
    return open_store(store) if isinstance(store, str) else store


def store_of_limits(store: Store | str | None, use: str) -> Store | str:
    """The store of limits that others have made, or its URL; ``use`` is a right call.

    Raises ``ConfigurationError`` for ``None``, and for the URL of memory: that is a new store, which no limit has.
    """
    given = checked_store(store)
    if given is None or given == "memory://":
        wrong = "None" if given is None else "a memory of its own, memory://"
        raise ConfigurationError(
            f"{use.partition('(')[0]} needs the store of the limits, not {wrong}: {use}, where store is the object "
            'that the RateLimitMiddleware has, or its URL, "redis://localhost"'
        )
    return given
