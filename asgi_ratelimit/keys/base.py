"""What a key is, a function of the connection, and keys that are made of others.

The package's own keys read the bare ASGI scope. Two different combinations of keys never have the same text, whatever
their parts are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isfunction
from typing import Any, Self, TypeAlias
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import LONGEST_KEY, as_bytes, as_key, digest
from ..errors import ConfigurationError
from ..logs import warn_once

Key: TypeAlias = str | bytes | int | UUID | None
KeyFunction: TypeAlias = Callable[[Any], Key | Awaitable[Key]]
"""A function of the connection: of a ``Request``, or of the ``HTTPConnection`` of a handshake."""

# The name of a header, RFC 9110, section 5.6.2.
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"

# The one key for everything that cannot be parsed: a client that forges such values must not get new buckets.
UNREADABLE = "unreadable"


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
    right = "client_ip()" if kind == "Address" else "str(user.id)"  # Starlette's address has the port as well
    raise TypeError(f"{source} is of type {kind}, but a key is a str, bytes, an int, a UUID or None: {right}")


def short_key(key: str) -> str:
    """``key`` itself, or, above 128 bytes, a stand-in of 33 bytes that no short key equals.

    No key of the program begins with the zero byte that also marks the address which stands in for a failed key.
    """
    data = as_bytes(key)
    return key if len(data) <= LONGEST_KEY and key[:1] != "\0" else "\0" + digest(data)


def short_text(value: Any, source: str) -> str | None:
    """A value of the app as a key; long values fill neither this process's memory nor the store's."""
    return None if value is None else short_key(key_text(value, source))


def own_text(value: Any) -> str | None:
    """What a key function of the program has returned, as a key; none has the zero byte of stand-ins at its start."""
    text = None if value is None else key_text(value)
    return short_key(text) if text and text[0] == "\0" else text


def is_dependency(value: object) -> bool:
    """Whether this is FastAPI's ``Depends(...)`` or ``Security(...)``, which is not imported here."""
    return not callable(value) and hasattr(value, "dependency") and hasattr(value, "use_cache")


def lacks_its_call(value: object) -> bool:
    """Whether this is a class, a function that makes a key or a hook, or FastAPI's ``Depends``, without its call."""
    modules = (__name__, "asgi_ratelimit.metrics", "fastapi.param_functions")
    return isinstance(value, type) or (isfunction(value) and value.__module__ in modules)


def checked_source(name: str, example: str, pattern: str = "(?s).+") -> str:
    """The name of a header, cookie, parameter or attribute; ``ConfigurationError`` for an invalid one."""
    if isinstance(name, str) and re.fullmatch(pattern, name):
        return name
    raise ConfigurationError(f"a key needs a name, of a header for instance, not {name!r}: {example}")


def header_name(name: str, example: str) -> bytes:
    """The name of a header as a scope contains it; ``ConfigurationError`` for an invalid one."""
    return checked_source(name, example, _TOKEN).lower().encode()


async def called(function: Any, *arguments: object) -> Any:
    """The result of a function, sync or async."""
    result = function(*arguments)
    return await result if hasattr(result, "__await__") else result


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

    def _joined(self, keys: Iterable[str | None]) -> str | None:
        """The key made of those of the parts: in a combination, each follows its length, so that its borders are fixed.

        ``5:alice-2:eu`` is alice, nobody, eu; ``1:alice`` is the second part's, if the first that has one decides.
        """
        texts = []
        for number, key in enumerate(keys):
            if self._is_first and key is not None:
                return f"{number}:{key}"  # the parts that follow are not evaluated
            texts.append("-" if key is None else f"{len(key)}:{key}")
        return None if set(texts) == {"-"} else short_key("".join(texts))


class _ScopeParts(ScopeKey, _Parts):
    """Parts that are all read from the scope."""

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return self._joined(part.of(scope) for part in self.parts)


class _MixedParts(_Parts):
    """Parts of which some are functions of the connection, sync or async."""

    async def __call__(self, connection: HTTPConnection) -> str | None:
        keys: list[str | None] = []
        for part in self.parts:
            key = await called(part, connection)
            keys.append(None if key is None else key_text(key))
            if self._is_first and key is not None:
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


WATCHED = 100  # how many requests without a key are enough to warn


class KeyWatch:
    """Watches a rule until it charges a request, or until it has charged none of many: it limits nobody, it seems."""

    missing = 0  # how many requests were not charged
    is_over = False  # whether it need not be watched any longer
    is_silent = False  # whether it has charged none of the first requests

    def see(self, key: str | None, name: str, function: KeyFunction) -> None:
        """Take note of the key that the rule ``name`` charges, of its ``function``; ``None`` if it charges nothing."""
        self.missing = self.missing + 1 if key is None else 0
        self.is_silent = self.missing >= WATCHED
        self.is_over = key is not None or self.is_silent
        if self.is_silent:
            problem = f"the key of {name!r}, {function!r}, or quota was None or cost 0 for the first {WATCHED} requests"
            mend = "is its name right, do clients send it, and is it set before the limit runs, as by key=Depends(user)"
            warn_once("a-key-that-never-comes", f"{problem}, so it limits nobody: {mend}? To exempt some, use allow=")
