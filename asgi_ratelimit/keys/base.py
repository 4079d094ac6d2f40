"""What a key is, a function of the connection, and calls of such functions.

The package's own keys read the bare ASGI scope.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from inspect import isfunction
from typing import Any, TypeAlias
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import as_key, short_key
from ..errors import ConfigurationError

Key: TypeAlias = str | bytes | int | UUID | None
KeyFunction: TypeAlias = Callable[[Any], Key | Awaitable[Key]]
"""A function of the connection: of a ``Request``, or of the ``HTTPConnection`` of a handshake."""

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
"""The name of a header, RFC 9110, section 5.6.2."""

UNREADABLE = "unreadable"
"""The one key for everything that cannot be parsed: a client that forges such values must not get new buckets."""


class ScopeKey(ABC):
    """A key that is read from the ASGI scope, without a connection object, as all kinds in this package are."""

    def __call__(self, connection: HTTPConnection) -> str | None:
        return self.of(connection.scope)

    @abstractmethod
    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""


class NamedKey(ScopeKey):
    """A key that has the name of what it reads."""

    name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class PathKey(ABC):
    """A key that depends on the path of the rule it is used in."""

    @abstractmethod
    def bind(self, path: str, root: str = "") -> KeyFunction:
        """This key for a rule with ``path``, for an app that sets this root path by itself.

        Raises ``ConfigurationError`` if it can never work there.
        """


def bind(key: KeyFunction, path: str, root: str = "") -> KeyFunction:
    """``key`` for a rule with ``path``: a ``path_param`` in it reads from that path."""
    return key.bind(path, root) if isinstance(key, PathKey) else key


def key_text(key: str | bytes | int | UUID, source: str = "a key function's result") -> str:
    """A key as text; ``TypeError`` for a value whose text is not the same in every process."""
    if isinstance(key, (str, bytes)):
        return as_key(key)
    if isinstance(key, (int, UUID)) and not isinstance(key, bool):
        return str(key)
    kind = type(key).__qualname__  # not the value, which may be what an app knows of a user
    raise TypeError(f"{source} is of type {kind}, but a key is a str, bytes, an int, a UUID or None: str(user.id)")


def as_text(value: Any, source: str) -> str | None:
    """A value of the app as a key; long values fill neither this process's memory nor the store's."""
    return None if value is None else short_key(key_text(value, source))


def is_dependency(value: object) -> bool:
    """Whether this is FastAPI's ``Depends(...)`` or ``Security(...)``, which is not imported here."""
    return not callable(value) and hasattr(value, "dependency") and hasattr(value, "use_cache")


def lacks_its_call(value: object) -> bool:
    """Whether this is a class, ``combine`` or its like, or FastAPI's ``Depends``, which is not imported here."""
    modules = ("asgi_ratelimit.keys.combine", "fastapi.param_functions")
    return isinstance(value, type) or (isfunction(value) and value.__module__ in modules)


def checked_name(name: str, example: str, pattern: str = "(?s).+") -> str:
    """The name of a header, cookie, parameter or attribute; ``ConfigurationError`` for an invalid one."""
    if isinstance(name, str) and re.fullmatch(pattern, name):
        return name
    raise ConfigurationError(f"a key needs a name, of a header for instance, not {name!r}: {example}")


def header_name(name: str, example: str) -> bytes:
    """The name of a header as a scope contains it; ``ConfigurationError`` for an invalid one."""
    return checked_name(name, example, _TOKEN).lower().encode()


async def called(function: Any, *arguments: object) -> Any:
    """The result of a function, sync or async."""
    result = function(*arguments)
    return await result if hasattr(result, "__await__") else result
