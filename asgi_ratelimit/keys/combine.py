"""Keys that are made of other keys. Two different combinations never have the same text, whatever their parts are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, ClassVar, Self

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import short_key
from ..errors import ConfigurationError
from .base import KeyFunction, PathKey, ScopeKey, bind, called, is_dependency, key_text, lacks_its_call

_OF_DEPENDENCIES = (
    "write one dependency of all parts, def account(login: Login, ip: Annotated[str, Depends(client_ip())]) -> str: "
    'return f"{ip} {login.email}", and RateLimit("5/minute", key=Depends(account))'
)


def combine(*keys: KeyFunction) -> KeyFunction:
    """Key by several things together, such as the address and the account: one bucket for each combination.

    A part without a key still counts as a part, so nobody gets past the limit by leaving it out. If no part has a key,
    the combination has none. The parts are keys of this package, or any other key functions.
    Raises ``ConfigurationError`` for no keys, or for something that is not callable.
    """
    parts = _scope_keys(_checked(keys, "combine(client_ip(), path_param('id'))"))
    return _Combined(parts) if parts else _MixedCombined(keys)


def first_of(*keys: KeyFunction) -> KeyFunction:
    """Key by the first of these that has a key: by user, say, or else by address. The others are not evaluated.

    A key of one part is never equal to a key of another. Raises ``ConfigurationError`` as ``combine`` does.
    """
    parts = _scope_keys(_checked(keys, "first_of(user(), client_ip())"))
    return _First(parts) if parts else _MixedFirst(keys)


class _Parts(PathKey):
    """A key that is made of others."""

    _function: ClassVar[str]

    def __init__(self, parts: Sequence[KeyFunction]) -> None:
        self._parts = tuple(parts)

    def __repr__(self) -> str:
        return f"{self._function}({', '.join(map(repr, self._parts))})"

    @property
    def parts(self) -> tuple[KeyFunction, ...]:
        """The keys that it is made of."""
        return self._parts

    @abstractmethod
    def __call__(self, connection: HTTPConnection) -> str | Awaitable[str | None] | None:
        """The key of the request of this connection."""

    def bind(self, path: str, root: str = "") -> Self:
        """The same key of parts that are bound to ``path``."""
        return type(self)([bind(part, path, root) for part in self._parts])


class _ScopeParts(ScopeKey, _Parts):
    """Parts that are all read from the scope."""

    _parts: tuple[ScopeKey, ...]


class _Combined(_ScopeParts):
    _function = "combine"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return _joined([part.of(scope) for part in self._parts])


class _MixedCombined(_Parts):
    _function = "combine"

    async def __call__(self, connection: HTTPConnection) -> str | None:
        return _joined([await _evaluated(part, connection) for part in self._parts])


class _First(_ScopeParts):
    _function = "first_of"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        for number, part in enumerate(self._parts):
            key = part.of(scope)
            if key is not None:
                return _numbered(number, key)
        return None


class _MixedFirst(_Parts):
    _function = "first_of"

    async def __call__(self, connection: HTTPConnection) -> str | None:
        for number, part in enumerate(self._parts):
            key = await _evaluated(part, connection)
            if key is not None:
                return _numbered(number, key)
        return None


def _joined(keys: Sequence[str | None]) -> str | None:
    """Each part follows its length, so that its borders are fixed: ``5:alice-2:eu`` for alice, nobody, eu."""
    if keys.count(None) == len(keys):
        return None
    return short_key("".join(["-" if key is None else f"{len(key)}:{key}" for key in keys]))


def _numbered(number: int, key: str) -> str:
    return f"{number}:{key}"


async def _evaluated(part: KeyFunction, connection: HTTPConnection) -> str | None:
    key = await called(part, connection)
    return None if key is None else key_text(key)


def _checked(keys: Iterable[KeyFunction], example: str) -> Sequence[KeyFunction]:
    parts: tuple[Any, ...] = tuple(keys)
    uncalled = next((part for part in parts if lacks_its_call(part) or part in (combine, first_of)), None)
    if uncalled is not None:
        name = uncalled.__name__
        raise ConfigurationError(f"the part {name} of a key lacks its call, {name}(...): {example}")
    wrong = [part for part in parts if not callable(part)]
    if wrong and is_dependency(wrong[0]):
        raise ConfigurationError(f"{wrong[0]!r} cannot be a part of a key: {_OF_DEPENDENCIES}")
    if wrong or not parts:
        raise ConfigurationError(f"a key is made of key functions, not {wrong[0] if wrong else 'nothing'!r}: {example}")
    return parts


def _scope_keys(parts: Sequence[KeyFunction]) -> tuple[ScopeKey, ...] | None:
    """The parts, if all of them are read from the scope."""
    scope_keys = tuple([part for part in parts if isinstance(part, ScopeKey)])
    return scope_keys if len(scope_keys) == len(parts) else None
