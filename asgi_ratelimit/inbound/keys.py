"""Keys: whose bucket a request is charged to.

A key function takes the connection and returns a text, bytes, or ``None``, which means that its rule does not apply.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..errors import ConfigurationError

Key: TypeAlias = str | bytes | None
KeyFunction: TypeAlias = Callable[[HTTPConnection], Key | Awaitable[Key]]
Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_HOPS = 32
"""How many forwarded hops are followed, at the most."""

logger = logging.getLogger("asgi_ratelimit")


class ScopeKey(ABC):
    """A key that is read off the ASGI scope, with no need of a connection object: all keys of this module."""

    def __call__(self, connection: HTTPConnection) -> str | None:
        return self.of(connection.scope)

    @abstractmethod
    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""


class client_ip(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the client's address: IPv4 by itself, IPv6 by its network of ``ipv6_prefix`` bits.

    It is the peer's address, unless the peer is in ``trusted_proxies`` (addresses or networks): then
    ``X-Forwarded-For`` is read from the right, past all trusted hops, and the first other one is the client. What
    stands further to the left anybody could have written. A hop that is no address ends the walk: the request then
    counts for the proxy that passed it on. IPv4-mapped IPv6 addresses are IPv4.

    A request without any address, as on a Unix socket, has no key, and a warning says so once.
    Raises ``ConfigurationError`` for proxies or a prefix that cannot be.
    """

    def __init__(self, trusted_proxies: Iterable[str] = (), ipv6_prefix: int = 64) -> None:
        if not isinstance(ipv6_prefix, int) or not 1 <= ipv6_prefix <= 128:
            raise ConfigurationError(
                f"ipv6_prefix must be from 1 to 128, not {ipv6_prefix!r}: client_ip(ipv6_prefix=64)"
            )
        self._trusted = tuple(_networks(trusted_proxies))
        self._prefix = ipv6_prefix
        self._key = lru_cache(maxsize=65_536)(partial(_address_key, ipv6_prefix=ipv6_prefix))
        self._warned = False

    def __repr__(self) -> str:
        return f"client_ip({[str(network) for network in self._trusted]}, ipv6_prefix={self._prefix})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        client = scope.get("client")
        if not client or not client[0]:
            self._warn_once()
            return None
        peer: str = client[0]
        if not self._trusted:
            return self._key(peer)
        return self._key(self._forwarded(peer, scope))

    def _forwarded(self, peer: str, scope: Scope) -> str:
        """The first address from the right that is not a trusted proxy's."""
        passed_on_by = peer
        if not _is_in(peer, self._trusted):
            return peer
        for hop in _hops_from_the_right(scope):
            if _address(hop) is None:
                break
            passed_on_by = hop
            if not _is_in(hop, self._trusted):
                break
        return passed_on_by

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "a request came without a client address, so client_ip() has no key for it and it is not limited: "
                "behind a Unix socket, let the server read forwarded headers, or key by something else"
            )


class header(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the value of a request header, hashed: an API key never reaches the store. No header, no key."""

    def __init__(self, name: str) -> None:
        if not (isinstance(name, str) and name.isascii() and name):
            raise ConfigurationError(f'the name of a header is ASCII and not empty, not {name!r}: header("x-api-key")')
        self._name = name.lower().encode()

    def __repr__(self) -> str:
        return f"header({self._name.decode()!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        values = [value for name, value in scope["headers"] if name == self._name]
        return _hashed(b",".join(values)) if values else None


def _hashed(secret: bytes) -> str:
    return hashlib.blake2b(secret, digest_size=16, key=b"asgi_ratelimit").hexdigest()


def _networks(trusted_proxies: Iterable[str]) -> Iterator[Network]:
    if isinstance(trusted_proxies, str):
        trusted_proxies = [trusted_proxies]
    for text in trusted_proxies:
        try:
            yield _unmapped(ip_network(text))
        except ValueError as error:
            raise ConfigurationError(f'{error}: client_ip(trusted_proxies=["10.0.0.0/8", "::1"])') from error


def _unmapped(network: Network) -> Network:
    """A network of IPv4-mapped addresses as that of the IPv4 addresses."""
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None or network.prefixlen < 96 else ip_network((mapped, network.prefixlen - 96))


def _address_key(text: str, ipv6_prefix: int) -> str:
    """A text that is no address comes from the server itself (a test client's name), and stands for itself."""
    address = _address(text)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, ipv6_prefix), strict=False))
    return text if address is None else str(address)


@lru_cache(maxsize=65_536)
def _is_in(text: str, networks: tuple[Network, ...]) -> bool:
    address = _address(text)
    return address is not None and any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """The address in a text that may carry a port, brackets or a zone; IPv4-mapped ones as IPv4."""
    try:
        address = ip_address(_bare(text))
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address
    return address


def _bare(text: str) -> str:
    """``[2001:db8::1]:80``, ``192.0.2.1:80`` and ``fe80::1%eth0`` without their port, brackets and zone."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.partition("%")[0]


def _hops_from_the_right(scope: Scope) -> list[str]:
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    hops = b",".join(lines).rsplit(b",", MAX_HOPS)[-MAX_HOPS:] if lines else []
    return [hop.decode("latin-1") for hop in reversed(hops)]
