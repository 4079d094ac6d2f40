"""``RateLimit(key=Depends(current_user_id))``: a key that a dependency returns. FastAPI is not imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ...errors import ConfigurationError
from ...keys import Key
from .lacking_depends import require_called_keys

VALUES_KEY = "asgi_ratelimit.keys"
"""The entry in the scope of a request that stores the values of dependencies."""

_EXAMPLE = 'RateLimit("5/minute", key=Depends(current_user_id))'


class DependencyKey:
    """The key that ``dependency``, a ``Depends(...)``, returns; FastAPI calls it once for each request."""

    def __init__(self, dependency: Any) -> None:
        if dependency.dependency is None:
            raise ConfigurationError(f"key={dependency!r} names no dependency: {_EXAMPLE}")
        require_called_keys(dependency.dependency)
        self.dependency = dependency

    def __repr__(self) -> str:
        return f"Depends({self._name})"

    @property
    def _name(self) -> str:
        function = self.dependency.dependency
        return str(getattr(function, "__name__", repr(function)))

    def __call__(self, connection: HTTPConnection) -> Key:
        value = connection.scope[VALUES_KEY][self]
        if value is None or isinstance(value, (str, bytes, int, UUID)):
            return value
        raise TypeError(
            f"{self!r} returned a {type(value).__qualname__}, but a key is a str, bytes, an int, a UUID or None: "
            f"write a dependency that returns the id, {_EXAMPLE}"
        )


def store_values(scope: Scope, values: Mapping[DependencyKey, object]) -> None:
    """Store the values that dependencies have returned for a request, so that their keys find them."""
    if values:
        scope.setdefault(VALUES_KEY, {}).update(values)
