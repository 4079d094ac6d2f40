"""Keys by a name: a hashed header or cookie, or what the app knows, a user, a state or a parameter of the path."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from starlette.convertors import Convertor
from starlette.routing import PARAM_REGEX
from starlette.types import Scope

from ..buckets import as_bytes
from ..errors import ConfigurationError, shows_use
from ..logs import warn_once
from .base import UNREADABLE, NamedKey, PathKey, ScopeKey, checked_source, header_name, short_key, short_text
from .path_patterns import compile_rule_path, normalised, readings, route_path

_ESCAPE = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)

# Browsers send more than the tokens of RFC 6265, such as ``user[id]``.
_COOKIE = r"[^\s=;]+"


class _HashedKey(NamedKey):
    """The hash of a value, of 128 bits as hexadecimal digits, the same in every process with the same secret."""

    def __init__(self, name: str, secret: str | bytes | None) -> None:
        if secret is not None and not (isinstance(secret, (str, bytes)) and secret):
            raise ConfigurationError('secret is text or bytes, not empty: header("x-api-key", secret=settings.secret)')
        self.name = name
        data = as_bytes(secret) if isinstance(secret, str) else secret
        self._hash_key = b"asgi_ratelimit" if data is None else blake2b(data, digest_size=64).digest()

    def _only(self, values: set[bytes]) -> str | None:
        """The key of the only value, or that of all requests with several; ``None`` without one."""
        if len(values) > 1:
            return UNREADABLE
        return self._hash(values.pop()) if values else None

    def _hash(self, value: bytes) -> str:
        return blake2b(value, digest_size=16, key=self._hash_key).hexdigest()


class header(_HashedKey):  # noqa: N801  # a function to its users
    """Key by the value of a request header, hashed: an API key never reaches the store. No header, no key.

    Requests in which it comes twice with different values share one key: apps read the first or the last one, so a
    client could choose a key that the app does not see. With a ``secret``, which must be the same in all processes,
    nobody who reads the store can even test guesses.
    """

    @shows_use('header("x-api-key")')
    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        self._name = header_name(name, 'header("x-api-key")')
        super().__init__(self._name.decode(), secret)

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return self._only({value.strip(b" \t") for name, value in scope["headers"] if name == self._name})

    def key_of(self, value: str) -> str:
        """The key of requests with this value, as ``request.headers`` shows it, for ``Limiter.peek`` or ``Blocks``."""
        return self._hash(value.strip(" \t").encode("latin-1"))


class cookie(_HashedKey):  # noqa: N801  # a function to its users
    """Key by the value of a cookie, hashed: a session never reaches the store. No cookie, no key.

    The value is the one that ``request.cookies[name]`` shows, found in linear time. ``secret``, and a name that comes
    twice, are as for ``header``.
    """

    @shows_use('cookie("session")')
    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        super().__init__(checked_source(name, 'cookie("session")', _COOKIE), secret)

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        values = set()
        for name, value in scope["headers"]:
            for pair in value.decode("latin-1").split(";") if name == b"cookie" else ():
                key, equals, text = pair.partition("=")
                if equals and key.strip() == self.name:
                    values.add(as_bytes(_unquoted(text.strip())))
        return self._only(values)

    def key_of(self, value: str) -> str:
        """The key of requests with this value, as ``request.cookies`` shows it, for ``Limiter.peek`` or ``Blocks``."""
        return self._hash(as_bytes(value))


def _unquoted(text: str) -> str:
    """The value of a cookie that may be quoted, as in ``http.cookies``, whose function takes quadratic time."""
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)) if match[1] else match[2], text[1:-1])


class user(NamedKey):  # noqa: N801  # a function to its users
    """Key by the user of Starlette's ``AuthenticationMiddleware``; no key for a user who is not authenticated.

    ``attribute`` is the attribute that distinguishes users: their ``identity``, or any other. The authentication must
    be outside the limit; if it is not, one warning is logged.
    """

    @shows_use('user("id")')
    def __init__(self, attribute: str = "identity") -> None:
        self.name = checked_source(attribute, 'user("id")')

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        current = scope.get("user")
        if current is None:
            warn_once("a-user-key-without-authentication", _NO_USER.format(self))
            return None
        if not current.is_authenticated:
            return None
        try:
            return short_text(getattr(current, self.name), repr(self))
        except (AttributeError, NotImplementedError) as error:
            raise TypeError(
                f"{self!r} needs an attribute {self.name!r}, which a {type(current).__qualname__} does not have: "
                'name the attribute that distinguishes users, user("id")'
            ) from error


_NO_USER = (
    "a request came without a user, so {!r} has no key for it and it is not limited: AuthenticationMiddleware must be "
    "outside the limit: add it after the limit with add_middleware, or before it in middleware=[...]"
)


class state(NamedKey):  # noqa: N801  # a function to its users
    """Key by a value, such as a tenant, that a middleware outside the limit put into ``request.state``; else no key."""

    @shows_use('state("tenant")')
    def __init__(self, name: str) -> None:
        self.name = checked_source(name, 'state("tenant")')

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return short_text((scope.get("state") or {}).get(self.name), repr(self))


class path_param(NamedKey, PathKey):  # noqa: N801  # a function to its users
    """Key by a parameter of the path, as its convertor reads it: ``/items/{id:int}`` has one key for 7 and 007.

    In a rule it is a parameter of the rule's own path; in a route's middleware or a dependency, of the route's path.
    Raises ``ConfigurationError`` for a rule whose path has no such parameter, and for a request that has not been
    routed yet.
    """

    @shows_use('path_param("id")')
    def __init__(self, name: str) -> None:
        self.name = checked_source(name, 'path_param("id")')

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        if "path_params" not in scope:
            raise ConfigurationError(
                f"{self!r} is evaluated before the request is routed: "
                f'use it in a rule whose path has it, Rule("/items/{{{self.name}}}", ..., key={self!r})'
            )
        value = scope["path_params"].get(self.name)
        return short_text(str(value) if isinstance(value, float) else value, repr(self))

    def bind(self, path: str, root: str = "") -> ScopeKey:
        """The key by this parameter of ``path``."""
        return _RulePathParam(self, path, root)


class _RulePathParam(ScopeKey):
    """A parameter of a rule's own path, which needs no routing."""

    def __init__(self, key: path_param, path: str, root: str) -> None:
        self._key = key
        self._pattern, convertors = compile_rule_path(path, root)
        if key.name not in convertors:
            raise ConfigurationError(
                f"{key!r} needs a parameter {{{key.name}}}, which {path!r} does not have: "
                f'Rule("/items/{{{key.name}}}", ..., key={key!r})'
            )
        for found in map(PARAM_REGEX.findall, path.split("/")):
            if len(found) > 1 and key.name in dict(found):
                problem = f"{path!r} can be read in several ways: {key!r} is in one segment with another parameter"
                raise ConfigurationError(f'{problem}: Rule("/items/{{{key.name}}}", ..., key={key!r})')
        self._convertor: Convertor[Any] = convertors[key.name]

    def __repr__(self) -> str:
        return repr(self._key)

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope; ``None`` if the path is not the rule's.

        It is unreadable if apps may read the parameter in several ways, whatever slashes are doubled.
        """
        path = route_path(scope)
        plain = [self._pattern.match(each) for each in readings(normalised(path))]
        matches = filter(None, (self._pattern.match(path), *plain))
        texts = {"/".join(filter(None, (match[self._key.name] or "").split("/"))) for match in matches}
        if len(texts) != 1 or not any(plain):
            return UNREADABLE if texts else None
        try:
            value = self._convertor.convert(texts.pop())
            return short_key(self._convertor.to_string(value))  # an object has a text of its own in each request
        except ValueError:  # a number of 5,000 digits, which is of no use to the route either
            return UNREADABLE
