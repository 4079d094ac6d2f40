"""The key by the client's address: the peer's, or the one that trusted proxies report."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from socket import AF_INET, AF_INET6

from starlette.types import Scope

from ..argument_errors import shows_use
from ..errors import ConfigurationError
from ..logs import see
from .addresses import (
    MAX_TEXT,
    Networks,
    client_key,
    forwarded_addresses,
    host_of,
    is_wide,
    listed_addresses,
    pack,
    parse_address,
    unmapped,
)
from .base import UNREADABLE, ScopeKey, ScopeTest, header_name

UNIX = "unix"
"""Stands for the other end of a Unix socket among the trusted proxies."""

_TRUSTED = 'client_ip(trusted_proxies=["10.0.0.0/8", "::1", "unix", "cloudflare"])'
_WITHIN = 'client_ip().within("10.0.0.0/8", "192.0.2.7")'

_NOT_PARSED = b""
"""Stands for the address of a peer whose text is not an address."""

_CHECKS = 100
"""How many requests are checked for a forwarding header, if no proxy is trusted."""

_FORWARDING = frozenset([b"x-forwarded-for", b"forwarded", b"x-real-ip", b"cf-connecting-ip", b"true-client-ip"])
"""The headers that show that there is a proxy."""

logger = logging.getLogger("asgi_ratelimit")


class client_ip(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the client's address: the IPv4 address, or the IPv6 network of ``ipv6_prefix`` bits.

    The client is the peer, unless the peer is in ``trusted_proxies``: addresses, networks, ``"unix"`` for the other
    end of a Unix socket, or ``"cloudflare"``, ``"cloudfront"`` or ``"fastly"`` for the networks of these CDNs. Then
    ``forwarded_header`` is read from the right, past all trusted proxies, and the first other address is the client.
    Anybody could have written the text further to the left. Reading stops at a text that is not an address: the request
    then counts for the proxy that passed it on.

    Exactly one header is trusted, the one that your proxy writes: ``"x-forwarded-for"``, ``"forwarded"`` (RFC 7239),
    or one of a single address such as ``"x-real-ip"``. A proxy passes the others on as the client sent them.

    IPv4-mapped IPv6 addresses are IPv4, and those of NAT64, 6to4 and Teredo have the key of the IPv4 host in them. A
    request without any address, as on a Unix socket, has no key, and one warning is logged.
    Raises ``ConfigurationError`` for invalid proxies, an invalid prefix or an invalid header.
    """

    @shows_use('client_ip(trusted_proxies=["10.0.0.0/8"])')
    def __init__(
        self,
        trusted_proxies: Iterable[str] = (),
        ipv6_prefix: int = 64,
        *,
        forwarded_header: str = "x-forwarded-for",
    ) -> None:
        if type(ipv6_prefix) is not int or not 1 <= ipv6_prefix <= 128:
            raise ConfigurationError(
                f"ipv6_prefix must be from 1 to 128, not {ipv6_prefix!r}: client_ip(ipv6_prefix=64)"
            )
        texts = _listed(trusted_proxies)
        self._trusted = _networks([text for text in texts if text != UNIX], _TRUSTED)
        self._trusts_unix = UNIX in texts
        self._prefix = ipv6_prefix
        self._header = header_name(forwarded_header, 'client_ip(forwarded_header="forwarded")')
        self._addresses_in = forwarded_addresses if self._header == b"forwarded" else listed_addresses
        self._warned: set[str] = set()
        self._checks_left = 0 if texts else _CHECKS
        for text in filter(is_wide, self._trusted.texts if self._trusted else ()):
            self._warn_once(_EVERYBODY, text)

    def __repr__(self) -> str:
        trusted = [*(self._trusted.texts if self._trusted else []), *([UNIX] if self._trusts_unix else [])]
        return f"client_ip({trusted}, {self._prefix}, forwarded_header={self._header.decode()!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        peer = scope.get("client")
        text: str = peer[0] if peer else ""
        try:
            is_v6 = ":" in text
            packed = unmapped(pack(AF_INET6, text)) if is_v6 else pack(AF_INET, text)
        except (OSError, TypeError, ValueError):  # not an address, or one with a port or a zone
            return self._key(self._client(scope))
        if self._trusted is not None and packed in self._trusted:
            return self._key(self._forwarded(packed, scope))
        if self._checks_left:
            self._check_headers(text, scope)
        return client_key(packed, self._prefix) if is_v6 else text  # an IPv4 address has only one text

    def within(self, *networks: str) -> ScopeTest:
        """Whether the client is in one of these networks or at one of these addresses: for ``allow`` and ``deny``.

        ``deny`` also refuses clients that come from there through a translator or tunnel; ``allow`` does not exempt
        them. Raises ``ConfigurationError`` for no networks or for an invalid one.
        """
        parsed = _networks(networks, _WITHIN)
        if parsed is None:
            raise ConfigurationError(f"within needs at least one network: {_WITHIN}")
        return _Within(self, parsed)

    def address(self, scope: Scope) -> bytes | None:
        """The packed address of the client of this scope, if it has one."""
        return self._client(scope) or None

    def _client(self, scope: Scope) -> bytes | None:
        """The packed address of the client, or ``_NOT_PARSED``; ``None`` if there is no address at all."""
        peer = scope.get("client")
        text = peer[0] if peer else None
        if not text:
            if self._trusts_unix:
                return self._forwarded(None, scope)
            self._warn_once(_NO_ADDRESS)
            return None
        packed = parse_address(text)
        if packed is None:
            self._warn_once(_NOT_AN_ADDRESS, text[:MAX_TEXT])
            return _NOT_PARSED
        if self._trusted is not None and packed in self._trusted:
            return self._forwarded(packed, scope)
        if self._checks_left:
            self._check_headers(text, scope)
        return packed

    def _forwarded(self, proxy: bytes | None, scope: Scope) -> bytes | None:
        """The first address from the right that is not a trusted proxy, or the last one that can be read."""
        client = proxy
        for text in self._addresses_in([value for name, value in scope["headers"] if name == self._header]):
            packed = parse_address(text)
            if packed is None:
                break
            client = packed
            if self._trusted is None or packed not in self._trusted:
                break
        if client is None:
            self._warn_once(_NO_ADDRESS)
        return client

    def _key(self, client: bytes | None) -> str | None:
        if not client:
            return None if client is None else UNREADABLE
        return client_key(client, self._prefix)

    def _check_headers(self, text: str, scope: Scope) -> None:
        """Warn about a forwarding header that names another address, while no proxy is trusted."""
        self._checks_left -= 1
        for name, value in scope["headers"]:
            if name in _FORWARDING and text.encode() not in value:  # else the server has taken the address from there
                self._checks_left = 0
                self._warn_once(_NOT_TRUSTED, text, name.decode(), text)

    def _warn_once(self, message: str, *arguments: object) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message, *arguments)


class _Within(ScopeTest):
    """Whether the client, as a key sees it, is in some networks."""

    def __init__(self, key: client_ip, networks: Networks) -> None:
        self._key = key
        self._networks = networks

    def __repr__(self) -> str:
        return f"{self._key!r}.within({', '.join(map(repr, self._networks.texts))})"

    def of(self, scope: Scope) -> bool:
        """Whether the client of this scope is in these networks."""
        packed = self._key.address(scope)
        return packed is not None and packed in self._networks

    def of_host(self, scope: Scope) -> bool:
        """Whether the client, or the IPv4 host behind its NAT64, 6to4 or Teredo address, is in these networks."""
        packed = self._key.address(scope)
        return packed is not None and (packed in self._networks or host_of(packed) in self._networks)


def _listed(trusted_proxies: Iterable[str]) -> list[str]:
    if isinstance(trusted_proxies, str):
        return [trusted_proxies]
    if isinstance(trusted_proxies, Iterable):
        return [*trusted_proxies]
    raise ConfigurationError(f"trusted_proxies are networks, not {trusted_proxies!r}: {_TRUSTED}")


def _networks(texts: Iterable[str], example: str) -> Networks | None:
    """The networks of these texts; ``None`` for no texts."""
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):  # ipaddress would accept a number or bytes as an address
            raise ConfigurationError(f"a network is written as text, not {text!r}: {example}")
    try:
        return Networks(texts) if texts else None
    except ValueError as error:
        raise ConfigurationError(f"{error}: {example}") from error


_NO_ADDRESS = (
    "a request came without a client address, so client_ip() has no key for it and it is not limited: behind a Unix "
    'socket, use client_ip(trusted_proxies=["unix"]) with a proxy that writes a forwarding header, or another key '
    + see("a-request-without-an-address")
)
_EVERYBODY = (
    "client_ip() trusts %r among its proxies, so nearly everybody: each client then writes its own address, and gets a "
    "new bucket whenever it likes; name the networks of your proxies only, or the name of your CDN, "
    'client_ip(trusted_proxies=["cloudflare"]) ' + see("everybody-is-a-trusted-proxy")
)
_NOT_AN_ADDRESS = (
    "the server reports %r as the client's address, which is not an IP address: all such clients share one bucket "
    + see("an-address-that-is-not-valid")
)
_NOT_TRUSTED = (
    "a request from %r carries %s, which is not trusted, so all clients behind that address share one bucket: "
    "client_ip(trusted_proxies=[%r]) if it is your proxy " + see("a-peer-that-is-not-trusted")
)
