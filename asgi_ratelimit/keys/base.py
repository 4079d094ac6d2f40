"""What a key is: a function of the connection, and for the package's own kinds one of the bare ASGI scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import short_key
from ..limiter import as_key

Key: TypeAlias = str | bytes | None
KeyFunction: TypeAlias = Callable[[HTTPConnection], Key | Awaitable[Key]]


class ScopeKey(ABC):
    """A key that is read off the ASGI scope, with no need of a connection object: all kinds of the package."""

    def __call__(self, connection: HTTPConnection) -> str | None:
        return self.of(connection.scope)

    @abstractmethod
    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""


class ScopeTest(ABC):
    """A question about a connection that is answered off the ASGI scope."""

    def __call__(self, connection: HTTPConnection) -> bool:
        return self.of(connection.scope)

    @abstractmethod
    def of(self, scope: Scope) -> bool:
        """The answer for the request with this scope."""


class PathBound(ABC):
    """A key that wants to know the path of the rule it is used in."""

    @abstractmethod
    def bound(self, path: str) -> KeyFunction:
        """This key for a rule with ``path``. Raises ``ConfigurationError`` where it could never work there."""


def bound(key: KeyFunction, path: str) -> KeyFunction:
    """``key`` for a rule with ``path``: a ``path_param`` in it reads from that path."""
    return key.bound(path) if isinstance(key, PathBound) else key


def as_text(value: object, source: str) -> str | None:
    """A value that an app has put somewhere as a key; ``TypeError`` for one without a text that stays the same."""
    if value is None:
        return None
    if isinstance(value, (str, bytes)):
        return short_key(as_key(value))  # a long one is not kept in memory, here or there
    if isinstance(value, (int, UUID)) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"{source} is {value!r}, where a key is a str, bytes, an int, a UUID or None: str(user.id)")
