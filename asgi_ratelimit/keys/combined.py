"""Keys made of other keys. Whatever its parts say, two different combinations never become one text."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from typing import ClassVar, Self

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import short_key
from ..errors import ConfigurationError
from ..limiter import as_key
from .base import KeyFunction, PathBound, ScopeKey, bound


def combine(*keys: KeyFunction) -> KeyFunction:
    """Key by several things together, such as the address and the account: one bucket for each combination.

    A part without a key is a part like any other, so that nobody gets past the limit by leaving it out; where no part
    has a key, neither has the combination. The parts are keys of this package, or any other key functions.
    Raises ``ConfigurationError`` for no keys, or what is none.
    """
    parts = _of_scope(_checked(keys, "combine(client_ip(), path_param('id'))"))
    return _Combined(parts) if parts else _MixedCombined(keys)


def first_of(*keys: KeyFunction) -> KeyFunction:
    """Key by the first of these that has a key: by user, say, or else by address; the others are not asked.

    What one of them says is never taken for what another one says. Raises ``ConfigurationError`` as ``combine`` does.
    """
    parts = _of_scope(_checked(keys, "first_of(user(), client_ip())"))
    return _First(parts) if parts else _MixedFirst(keys)


class _Parts(PathBound):
    """What all kinds have in common: their parts."""

    _called: ClassVar[str]

    def __init__(self, parts: Sequence[KeyFunction]) -> None:
        self._parts = tuple(parts)

    def __repr__(self) -> str:
        return f"{self._called}({', '.join(map(repr, self._parts))})"

    @abstractmethod
    def __call__(self, connection: HTTPConnection) -> str | Awaitable[str | None] | None:
        """The key of the request of this connection."""

    def bound(self, path: str) -> Self:
        """The same, of the parts as they are for a rule with ``path``."""
        return type(self)([bound(part, path) for part in self._parts])


class _ScopeParts(ScopeKey, _Parts):
    """Parts that are read off the scope."""

    _parts: tuple[ScopeKey, ...]


class _Combined(_ScopeParts):
    _called = "combine"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return _joined([part.of(scope) for part in self._parts])


class _MixedCombined(_Parts):
    _called = "combine"

    async def __call__(self, connection: HTTPConnection) -> str | None:
        return _joined([await _ask(part, connection) for part in self._parts])


class _First(_ScopeParts):
    _called = "first_of"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        for number, part in enumerate(self._parts):
            key = part.of(scope)
            if key is not None:
                return _numbered(number, key)
        return None


class _MixedFirst(_Parts):
    _called = "first_of"

    async def __call__(self, connection: HTTPConnection) -> str | None:
        for number, part in enumerate(self._parts):
            key = await _ask(part, connection)
            if key is not None:
                return _numbered(number, key)
        return None


def _joined(keys: Sequence[str | None]) -> str | None:
    """Each part after its length, so that their borders cannot be moved: ``5:alice-2:eu`` of alice, nobody, eu."""
    if all(key is None for key in keys):
        return None
    return short_key("".join(["-" if key is None else f"{len(key)}:{key}" for key in keys]))


def _numbered(number: int, key: str) -> str:
    return f"{number}:{key}"


async def _ask(part: KeyFunction, connection: HTTPConnection) -> str | None:
    key = part(connection)
    if inspect.isawaitable(key):
        key = await key
    return None if key is None else as_key(key)


def _checked(keys: Iterable[KeyFunction], example: str) -> Sequence[KeyFunction]:
    parts = tuple(keys)
    wrong = [part for part in parts if not callable(part)]
    if wrong or not parts:
        raise ConfigurationError(f"a key is made of key functions, not {wrong[0] if wrong else 'nothing'!r}: {example}")
    return parts


def _of_scope(parts: Sequence[KeyFunction]) -> tuple[ScopeKey, ...] | None:
    """The parts, if all of them are read off the scope."""
    found = tuple([part for part in parts if isinstance(part, ScopeKey)])
    return found if len(found) == len(parts) else None
