"""Keys that are made of other keys. Two different combinations never have the same text, whatever their parts are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any, Self

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import short_key
from ..errors import ConfigurationError
from .base import KeyFunction, PathKey, ScopeKey, bind, called, key_text, lacks_its_call


def combine(*keys: KeyFunction) -> KeyFunction:
    """Key by several things together, such as the address and the account: one bucket for each combination.

    A part without a key still counts as a part, so nobody gets past the limit by leaving it out. If no part has a key,
    the combination has none. The parts are keys of this package, or any other key functions.
    Raises ``ConfigurationError`` for no keys, or for something that is not callable.
    """
    return _made_of(keys, False, "combine(client_ip(), path_param('id'))")


def first_of(*keys: KeyFunction) -> KeyFunction:
    """Key by the first of these that has a key: by user, say, or else by address. The others are not evaluated.

    A key of one part is never equal to a key of another. Raises ``ConfigurationError`` as ``combine`` does.
    """
    return _made_of(keys, True, "first_of(user(), client_ip())")


class _Parts(PathKey):
    """A key that is made of others: of the first that has one, or of all together."""

    def __init__(self, parts: Sequence[Any], is_first: bool) -> None:
        self.parts = parts
        self._is_first = is_first

    def __repr__(self) -> str:
        return f"{'first_of' if self._is_first else 'combine'}({', '.join(map(repr, self.parts))})"

    @abstractmethod
    def __call__(self, connection: HTTPConnection) -> str | Awaitable[str | None] | None:
        """The key of the request of this connection."""

    def bind(self, path: str, root: str = "") -> Self:
        """The same key of parts that are bound to ``path``."""
        return type(self)([bind(part, path, root) for part in self.parts], self._is_first)

    def _is_known(self, keys: Sequence[str | None]) -> bool:
        """Whether the parts that follow are not evaluated."""
        return self._is_first and keys[-1] is not None

    def _joined(self, keys: Sequence[str | None]) -> str | None:
        """The key made of those of the parts: in a combination, each follows its length, so that its borders are fixed.

        ``5:alice-2:eu`` is alice, nobody, eu; ``1:alice`` is the second part's, if the first that has one decides.
        """
        if keys.count(None) == len(keys):
            return None
        if self._is_first:
            return f"{len(keys) - 1}:{keys[-1]}"
        return short_key("".join(["-" if key is None else f"{len(key)}:{key}" for key in keys]))


class _ScopeParts(ScopeKey, _Parts):
    """Parts that are all read from the scope."""

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        keys: list[str | None] = []
        for part in self.parts:
            keys.append(part.of(scope))
            if self._is_known(keys):
                break
        return self._joined(keys)


class _MixedParts(_Parts):
    """Parts of which some are functions of the connection, sync or async."""

    async def __call__(self, connection: HTTPConnection) -> str | None:
        keys: list[str | None] = []
        for part in self.parts:
            key = await called(part, connection)
            keys.append(None if key is None else key_text(key))
            if self._is_known(keys):
                break
        return self._joined(keys)


def _made_of(keys: tuple[Any, ...], is_first: bool, example: str) -> KeyFunction:
    if not keys:
        raise ConfigurationError(f"a key is made of one key or more, not of nothing: {example}")
    for part in keys:
        if not callable(part) or lacks_its_call(part):
            raise ConfigurationError(f"a part of a key is a key function with its call, not {part!r}: {example}")
    made = _ScopeParts if all(isinstance(part, ScopeKey) for part in keys) else _MixedParts
    return made(keys, is_first)
