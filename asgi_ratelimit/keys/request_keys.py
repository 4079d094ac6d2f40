"""Keys: whose bucket a request is charged to.

A key function takes the connection and returns a text, bytes, or ``None``, which means that its rule does not apply.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import Any

from starlette.convertors import Convertor
from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import as_bytes, short_key
from ..errors import ConfigurationError
from .base import Key, KeyFunction, PathBound, ScopeKey, as_text, bound
from .client_ip import UNREADABLE, client_ip, header_name
from .combined import combine, first_of
from .path_patterns import compiled, route_path

__all__ = [
    "Key",
    "KeyFunction",
    "ScopeKey",
    "bound",
    "client_ip",
    "combine",
    "cookie",
    "first_of",
    "header",
    "path_param",
    "state",
    "user",
]

logger = logging.getLogger("asgi_ratelimit")


class header(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the value of a request header, hashed: an API key never reaches the store. No header, no key.

    It is the value that ``request.headers[name]`` shows, so a header that is sent twice is keyed as the app reads it.
    With a ``secret``, the same in all processes, who sees the store cannot even try values out.
    """

    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        self._name = header_name(name, 'header("x-api-key")')
        self._hash = _Hash(secret)

    def __repr__(self) -> str:
        return f"header({self._name.decode()!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        for name, value in scope["headers"]:
            if name == self._name:
                return self._hash(value.strip(b" \t"))  # not part of the value, but some servers leave it there
        return None


class cookie(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the value of a cookie, hashed: a session never reaches the store. No cookie, no key.

    It is the value that ``request.cookies[name]`` shows. ``secret`` is that of ``header``.
    """

    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        self._name = _checked_name(name, 'cookie("session")')
        self._hash = _Hash(secret)

    def __repr__(self) -> str:
        return f"cookie({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        value = HTTPConnection(scope).cookies.get(self._name)
        return None if value is None else self._hash(as_bytes(value))


class path_param(ScopeKey, PathBound):  # noqa: N801  # a function to its users
    """Key by a parameter of the path, as its convertor reads it: ``/items/{id:int}`` has one key for 7 and 007.

    In a rule it is a parameter of the rule's own path; in a route's middleware, or a dependency, of the route's path.
    Raises ``ConfigurationError`` for a rule whose path has no such parameter, and for a request that has not been
    routed yet.
    """

    def __init__(self, name: str) -> None:
        self._name = _checked_name(name, 'path_param("id")')

    def __repr__(self) -> str:
        return f"path_param({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        if "path_params" not in scope:
            raise ConfigurationError(
                f"{self!r} is asked before the request is routed: "
                f'use it in a rule whose path has it, Rule("/items/{{{self._name}}}", ..., key={self!r})'
            )
        return as_text(scope["path_params"].get(self._name), repr(self))

    def bound(self, path: str) -> ScopeKey:
        """The key by this parameter of ``path``."""
        return _RulePathParam(self._name, path)


class _RulePathParam(ScopeKey):
    """A parameter of a rule's own path, which needs no routing."""

    def __init__(self, name: str, path: str) -> None:
        self._pattern, convertors = compiled(path)
        if name not in convertors:
            raise ConfigurationError(
                f"path_param({name!r}) finds no {{{name}}} in {path!r}: "
                f'Rule("/items/{{{name}}}", ..., key=path_param({name!r}))'
            )
        self._name = name
        self._convertor: Convertor[Any] = convertors[name]

    def __repr__(self) -> str:
        return f"path_param({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope; ``None`` where the path is not the rule's."""
        match = self._pattern.match(route_path(scope))
        return None if match is None else self._converted(match[self._name])

    def _converted(self, text: str) -> str:
        try:
            return short_key(str(self._convertor.convert(text)))
        except ValueError:  # a number of 5,000 digits, for which the route has no use either
            return UNREADABLE


class user(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the user that Starlette's ``AuthenticationMiddleware`` found; no key for one who is not authenticated.

    ``attribute`` is what tells users apart: their ``identity``, or any other. The authentication must come first,
    outside of the limit; where it does not, a warning says so once.
    """

    def __init__(self, attribute: str = "identity") -> None:
        self._attribute = _checked_name(attribute, 'user("id")')
        self._warned = False

    def __repr__(self) -> str:
        return f"user({self._attribute!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        if "user" not in scope:
            self._warn_once()
            return None
        found = scope["user"]
        return as_text(self._identity(found), repr(self)) if found.is_authenticated else None

    def _identity(self, found: object) -> object:
        try:
            return getattr(found, self._attribute)
        except (AttributeError, NotImplementedError) as error:
            raise TypeError(
                f"{self!r} finds no {self._attribute} in a {type(found).__qualname__}: "
                'name the attribute that tells users apart, user("id")'
            ) from error

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "a request came without a user, so %r has no key for it and it is not limited: "
                "AuthenticationMiddleware must be outside of the limit, which is before it in the list of middleware "
                "(docs/warnings.md#a-user-that-nobody-has-looked-for)",
                self,
            )


class state(ScopeKey):  # noqa: N801  # a function to its users
    """Key by what a middleware outside of the limit has put into ``request.state``, such as a tenant; else no key."""

    def __init__(self, name: str) -> None:
        self._name = _checked_name(name, 'state("tenant")')

    def __repr__(self) -> str:
        return f"state({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return as_text((scope.get("state") or {}).get(self._name), repr(self))


class _Hash:
    """A hash of 128 bits as 32 hexadecimal digits, the same in every process, of no use without the secret."""

    def __init__(self, secret: str | bytes | None) -> None:
        if secret is not None and not (isinstance(secret, (str, bytes)) and secret):
            raise ConfigurationError(
                'a secret is a text or bytes and not empty: header("x-api-key", secret=settings.secret)'
            )
        given = as_bytes(secret) if isinstance(secret, str) else secret
        self._key = b"asgi_ratelimit" if given is None else blake2b(given, digest_size=64).digest()

    def __call__(self, value: bytes) -> str:
        return blake2b(value, digest_size=16, key=self._key).hexdigest()


def _checked_name(name: str, example: str) -> str:
    if isinstance(name, str) and name:
        return name
    raise ConfigurationError(f"the name of a key is a text and not empty, not {name!r}: {example}")
