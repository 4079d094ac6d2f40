"""The key by the client's address: the peer's, or the one that trusted proxies report."""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, inet_pton
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..errors import ConfigurationError, require_number, shows_use
from ..logs import warn_once
from .addresses import UNIX, Networks, client_key, forwarded_nodes, host_of, is_wide, listed_addresses, parse_address
from .base import UNREADABLE, KeyFunction, ScopeKey, header_name

_TRUSTED = 'client_ip(trusted_proxies=["10.0.0.0/8", "::1", "unix", "cloudflare"])'
_WITHIN = 'client_ip().within("10.0.0.0/8", "192.0.2.7")'
_NAT64 = 'client_ip(nat64=["2001:db8:64::/96"])'

# How many requests are checked for a forwarding header, until one comes from a proxy that is trusted.
_CHECKS = 100

# The headers that show that there is a proxy.
_FORWARDING = frozenset([b"x-forwarded-for", b"forwarded", b"x-real-ip", b"cf-connecting-ip", b"true-client-ip"])


class client_ip(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the client's address: the IPv4 address, or the IPv6 network of ``ipv6_prefix`` bits.

    The client is the peer, unless the peer is in ``trusted_proxies``: addresses, networks, ``"unix"`` for the other
    end of a Unix socket, or ``"cloudflare"``, ``"cloudfront"`` or ``"fastly"`` for the networks of these CDNs. Then
    ``forwarded_header`` is read from the right, past all trusted proxies, and the first other address is the client.
    Anybody could have written the text further to the left. Reading stops at a text that is not an address: the request
    then counts for the proxy that passed it on.

    Exactly one header is trusted, the one that your proxy writes: ``"x-forwarded-for"``, ``"forwarded"`` (RFC 7239),
    or one of a single address such as ``"x-real-ip"``. A proxy passes the others on as the client sent them.

    IPv4-mapped IPv6 addresses are IPv4, and those of NAT64, 6to4 and Teredo have the key of the IPv4 host in them.
    ``nat64`` are the prefixes of translators of your own, of 96 bits each: their addresses are IPv4. A request without
    any address, as on a Unix socket, has no key, and one warning is logged.
    Raises ``ConfigurationError`` for invalid proxies, an invalid prefix or an invalid header.
    """

    @shows_use('client_ip(trusted_proxies=["10.0.0.0/8"])')
    def __init__(
        self,
        trusted_proxies: Iterable[str] = (),
        ipv6_prefix: int = 64,
        *,
        forwarded_header: str = "x-forwarded-for",
        nat64: Iterable[str] = (),
    ) -> None:
        self._trusted = _networks(trusted_proxies, _TRUSTED)
        use = "client_ip(ipv6_prefix=64)"
        self._prefix: int = require_number("ipv6_prefix must be from 1 to 128", ipv6_prefix, 1, 128, use, int)
        self._translators = _networks(nat64, _NAT64)
        if any(not text.endswith("/96") for text in self._translators.texts):
            raise ConfigurationError(f"nat64 are IPv6 networks of 96 bits, not {nat64!r}: {_NAT64}")
        self._header = header_name(forwarded_header, 'client_ip(forwarded_header="forwarded")')
        self._addresses_in = forwarded_nodes if self._header == b"forwarded" else listed_addresses
        self._checks_left = _CHECKS
        for text in filter(is_wide, self._trusted.texts):
            warn_once("everybody-is-a-trusted-proxy", _EVERYBODY.format(text))

    def __repr__(self) -> str:
        return f"client_ip({self._trusted.texts}, {self._prefix}, forwarded_header={self._header.decode()!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        peer = scope.get("client")
        text = (peer[0] if peer else None) or ""
        if not (self._checks_left or self._trusted.texts or ":" in text):  # most requests, at a fifth of the time
            try:
                inet_pton(AF_INET, text)
                return text  # an IPv4 address has only one text
            except (OSError, ValueError):
                pass
        client = self.address(scope)
        if not client:
            return None if client is None else UNREADABLE
        return client_key(client, self._prefix)

    def within(self, *networks: str) -> Within:
        """Whether the client is in one of these networks or at one of these addresses: for ``allow`` and ``deny``.

        ``deny`` also refuses clients that come from there through a translator or tunnel; ``allow`` does not exempt
        them. Raises ``ConfigurationError`` for no networks or for an invalid one.
        """
        if not networks or UNIX in networks:  # who has no address is in no network
            raise ConfigurationError(f"within needs one or more networks, not {networks!r}: {_WITHIN}")
        return Within(self, _networks(networks, _WITHIN))

    def address(self, scope: Scope) -> bytes | None:
        """The packed address of the client, empty if its text is not an address; ``None`` if there is none."""
        peer = scope.get("client")
        text = peer[0] if peer else None
        if text:
            client = parse_address(text)
            if client is None:
                return b""
            is_trusted = self._trusted.texts and client in self._trusted
            if self._checks_left:
                self._checks_left = 0 if is_trusted else self._checks_left - 1
                self._check_headers(text, () if is_trusted else scope["headers"])
        else:
            client, is_trusted = None, UNIX in self._trusted.texts
        if is_trusted:
            client = self._forwarded(client, scope)
        if client is None:
            warn_once("a-request-without-an-address", _NO_ADDRESS)
        elif self._translators.texts and client in self._translators:
            return client[-4:]
        return client

    def _forwarded(self, proxy: bytes | None, scope: Scope) -> bytes | None:
        """The first address from the right that is not a trusted proxy, or the last one that can be read."""
        client = proxy
        for text in self._addresses_in([value for name, value in scope["headers"] if name == self._header]):
            packed = parse_address(text)
            if packed is None:
                break
            client = packed
            if packed not in self._trusted:
                break
        return client

    def _check_headers(self, text: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Warn about a forwarding header that names another address than that of its sender, who is not trusted."""
        for name, value in headers:
            if name in _FORWARDING and text.encode() not in value:  # else the server has taken the address from there
                self._checks_left = 0
                warn_once("a-peer-that-is-not-trusted", _NOT_TRUSTED.format(text, name.decode()))


# The entry in a scope that says that clients are to be denied.
DENIES = "asgi_ratelimit.denies"


class Within:
    """Whether the client, as a key sees it, is in some networks: a yes-or-no question about a connection."""

    def __init__(self, key: client_ip, networks: Networks) -> None:
        self._key = key
        self._networks = networks

    def __repr__(self) -> str:
        return f"{self._key!r}.within({', '.join(map(repr, self._networks.texts))})"

    def __call__(self, connection: HTTPConnection) -> bool:
        return self.of(connection.scope)

    def of(self, scope: Scope) -> bool:
        """Whether the client of this scope is in these networks.

        While clients are to be denied, who may choose their way in, that includes the IPv4 host behind an address of
        NAT64, 6to4 or Teredo.
        """
        client = self._key.address(scope)
        if client and scope.get(DENIES):
            return client in self._networks or host_of(client) in self._networks
        return bool(client and client in self._networks)


def address_key(keys: Iterable[KeyFunction | None]) -> client_ip:
    """The first ``client_ip`` among these and their parts, which knows the trusted proxies; or else one without any."""
    ahead: list[Any] = list(keys)
    for key in ahead:
        if isinstance(key, client_ip):
            return key
        ahead += getattr(key, "parts", ())
    return client_ip()


def _networks(texts: Iterable[str], example: str) -> Networks:
    try:
        return Networks([texts] if isinstance(texts, str) else texts)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{error}, in {texts!r}: {example}") from error


_NO_ADDRESS = (
    "a request came without a client address, so client_ip() has no key for it and it is not limited: behind a Unix "
    'socket, use client_ip(trusted_proxies=["unix"]) with a proxy that writes a forwarding header, or another key'
)
_EVERYBODY = (
    "client_ip() trusts {!r} among its proxies, so nearly everybody: each client then writes its own address; name "
    'the networks of your proxies only, or the name of your CDN, client_ip(trusted_proxies=["cloudflare"])'
)
_NOT_TRUSTED = (
    "a request from {0!r} carries {1}, which is not trusted: if that is your proxy, its clients share one bucket until "
    "client_ip(trusted_proxies=[{0!r}]), but if it is a client of your proxy, start uvicorn with --no-proxy-headers"
)
