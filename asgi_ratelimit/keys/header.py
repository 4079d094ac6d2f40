"""Keys by what a client sends: the value of a header or cookie, hashed."""

from __future__ import annotations

import re
from hashlib import blake2b

from starlette.types import Scope

from ..argument_errors import shows_use
from ..buckets import as_bytes
from ..errors import ConfigurationError
from .base import NamedKey, checked_name, header_name

_ESCAPE = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)

_COOKIE = r"[^\s=;]+"
"""Browsers send more than the tokens of RFC 6265, such as ``user[id]``."""


class _HashedKey(NamedKey):
    """The hash of a value, of 128 bits as hexadecimal digits, the same in every process with the same secret."""

    def __init__(self, name: str, secret: str | bytes | None) -> None:
        if secret is not None and not (isinstance(secret, (str, bytes)) and secret):
            raise ConfigurationError(
                'a secret is a text or bytes and not empty: header("x-api-key", secret=settings.secret)'
            )
        self.name = name
        data = as_bytes(secret) if isinstance(secret, str) else secret
        self._hash_key = b"asgi_ratelimit" if data is None else blake2b(data, digest_size=64).digest()

    def _hash(self, value: bytes) -> str:
        return blake2b(value, digest_size=16, key=self._hash_key).hexdigest()


class header(_HashedKey):  # noqa: N801  # a function to its users
    """Key by the value of a request header, hashed: an API key never reaches the store. No header, no key.

    The value is the one that ``request.headers[name]`` shows, so a header that is sent twice is keyed as the app reads
    it. With a ``secret``, which must be the same in all processes, nobody who reads the store can even test guesses.
    """

    @shows_use('header("x-api-key")')
    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        self._name = header_name(name, 'header("x-api-key")')
        super().__init__(self._name.decode(), secret)

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        for name, value in scope["headers"]:
            if name == self._name:
                return self._hash(value.strip(b" \t"))  # some servers leave this whitespace in the value
        return None

    def key_of(self, value: str) -> str:
        """The key of requests with this value, as ``request.headers`` shows it, for ``Limiter.peek`` or ``Blocks``."""
        return self._hash(value.strip(" \t").encode("latin-1"))


class cookie(_HashedKey):  # noqa: N801  # a function to its users
    """Key by the value of a cookie, hashed: a session never reaches the store. No cookie, no key.

    The value is the one that ``request.cookies[name]`` shows, found in linear time. ``secret`` is as for ``header``.
    """

    @shows_use('cookie("session")')
    def __init__(self, name: str, *, secret: str | bytes | None = None) -> None:
        super().__init__(checked_name(name, 'cookie("session")', _COOKIE), secret)

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        found = None
        for name, value in scope["headers"]:
            for pair in value.decode("latin-1").split(";") if name == b"cookie" else ():
                key, equals, text = pair.partition("=")
                if equals and key.strip() == self.name:
                    found = text.strip()  # the last one, as the app reads it
        return None if found is None else self._hash(as_bytes(_unquoted(found)))

    def key_of(self, value: str) -> str:
        """The key of requests with this value, as ``request.cookies`` shows it, for ``Limiter.peek`` or ``Blocks``."""
        return self._hash(as_bytes(value))


def _unquoted(text: str) -> str:
    """The value of a cookie that may be quoted, as in ``http.cookies``, whose function takes quadratic time."""
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)) if match[1] else match[2], text[1:-1])
