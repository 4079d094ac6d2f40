"""Opens stores, from a URL or a ``store`` argument."""

from __future__ import annotations

from typing import Any

from ..argument_errors import shows_use
from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore
from .urls import URL_OF_REDIS, no_url, shown


@shows_use('open_store("redis://localhost:6379/0")')
def open_store(url: str, **options: Any) -> Store:
    """The store at ``url``: ``memory://``, ``redis://``, ``unix://``, ``redis+cluster://`` or ``redis+sentinel://``.

    Cluster and Sentinel take several hosts, separated by commas; ``rediss`` instead of ``redis`` means TLS. ``options``
    go to ``MemoryStore`` or ``RedisStore``. The store connects at first use.
    Raises ``ConfigurationError`` for any other URL, in which the password is hidden.
    """
    if url == "memory://":
        return MemoryStore(**options)
    if not isinstance(url, str) or URL_OF_REDIS.fullmatch(url) is None:
        raise no_url(url)
    from .redis import RedisStore

    return RedisStore(url, **options)


def checked_store(store: Store | str | None) -> Store | str | None:
    """A store, a URL, or ``None``; ``ConfigurationError`` for anything else, such as a client of redis-py."""
    if store is None or isinstance(store, str):
        return store
    if isinstance(store, type):
        raise ConfigurationError(f"store={store.__name__} lacks its call: store={store.__name__}()")
    needed = ("take", "peek", "settle", "reset", "aclose", "in_process")
    missing = next((name for name in needed if not hasattr(store, name)), None)
    if missing is not None:
        raise ConfigurationError(
            f"store is a store or a URL, not {shown(store)}, which has no {missing}: store=MemoryStore(), "
            'store=RedisStore(client) or store="redis://localhost"'
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
