"""Opens stores, from a URL or a ``store`` argument."""

from __future__ import annotations

from typing import Any

from ..argument_errors import shows_use
from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore
from .urls import SCHEMES, shown

_METHODS = ("take", "peek", "settle", "reset", "aclose")


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
