"""The key by the client's address, as the peer's or as trusted proxies report it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from starlette.types import Scope

from ..errors import ConfigurationError
from .addresses import (
    MAX_HOP,
    Address,
    Network,
    client_of,
    forwarded_hops,
    is_in,
    listed_hops,
    parse_address,
    parse_network,
)
from .base import ScopeKey, ScopeTest

MAX_SEEN = 16_384
"""How many addresses are remembered with their keys, at the most."""

UNREADABLE = "unreadable"
"""The one key of all peers whose address is none: where a client can forge its address, it can vary it at will."""

_TRUSTED = 'client_ip(trusted_proxies=["10.0.0.0/8", "::1", "unix"])'
_WITHIN = 'client_ip().within("10.0.0.0/8", "192.0.2.7")'

UNIX = "unix"
"""What stands for a Unix socket's other end among the trusted proxies."""

_LOOKS = 100
"""How many requests from private addresses are looked at for a forwarding header that is not believed."""

logger = logging.getLogger("asgi_ratelimit")


@dataclass(frozen=True, slots=True)
class Hop:
    """One end of a connection: its address and key, and whether what it says of those before it is believed."""

    key: str | None
    trusted: bool
    address: Address | None = None


class client_ip(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the client's address: IPv4 by itself, IPv6 by its network of ``ipv6_prefix`` bits.

    It is the peer's address, unless the peer is in ``trusted_proxies`` (addresses, networks, or ``"unix"`` for
    whoever connects by a Unix socket): then ``forwarded_header`` is read from the right, past all trusted hops, and
    the first other one is the client. What stands further to the left anybody could have written. A hop that is no
    address ends the walk: the request then counts for the proxy that passed it on.

    Exactly one header is believed, the one that your proxy writes: ``"x-forwarded-for"``, ``"forwarded"`` (RFC 7239),
    or one of a single address such as ``"x-real-ip"``. A proxy passes the others on as the client sent them.

    IPv4-mapped IPv6 addresses are IPv4, and those of NAT64, 6to4 and Teredo are the IPv4 host in them. A request
    without any address, as on a Unix socket, has no key, and a warning says so once.
    Raises ``ConfigurationError`` for proxies, a prefix or a header that cannot be.
    """

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
        named = _listed(trusted_proxies)
        self._trusted = tuple(_networks([text for text in named if text != UNIX], _TRUSTED))
        self._unix = Hop(None, UNIX in named)
        self._prefix = ipv6_prefix
        self._header = header_name(forwarded_header, 'client_ip(forwarded_header="forwarded")')
        self._hops = _reader(self._header)
        self._seen: dict[str | None, Hop] = {}
        self._warned: set[str] = set()
        self._looks = _LOOKS

    def __repr__(self) -> str:
        trusted = [*map(str, self._trusted), *([UNIX] if self._unix.trusted else [])]
        return f"client_ip({trusted}, {self._prefix}, forwarded_header={self._header.decode()!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        client = scope.get("client")
        hop = self._seen.get(client[0] if client else None)
        return self._client(scope).key if hop is None or hop.trusted else hop.key

    def is_direct(self, peer: str) -> bool:
        """Whether a peer is known to be the client itself, whatever it sends."""
        hop = self._seen.get(peer)
        return hop is not None and not hop.trusted

    def within(self, *networks: str) -> ScopeTest:
        """Whether the client is in one of these networks or at one of these addresses: for ``allow`` and ``deny``.

        Raises ``ConfigurationError`` for none, or for what is neither.
        """
        found = tuple(_networks(networks, _WITHIN))
        if not found:
            raise ConfigurationError(f"within needs at least one network: {_WITHIN}")
        return _Within(self, found)

    def address(self, scope: Scope) -> Address | None:
        """The address of the client of this scope, if it has one."""
        return self._client(scope).address

    def _client(self, scope: Scope) -> Hop:
        client = scope.get("client")
        peer = client[0] if client else None
        hop = self._seen.get(peer) or self._peer(peer, scope)
        return self._forwarded(hop, scope) if hop.trusted else hop

    def _peer(self, text: str | None, scope: Scope) -> Hop:
        """The peer, met for the first time."""
        if not text:
            if not self._unix.trusted:
                self._warn_once(_NO_ADDRESS)
            return self._unix
        address = parse_address(text)
        if address is None:
            self._warn_once(_NOT_AN_ADDRESS, text[:MAX_HOP])
            return Hop(UNREADABLE, False)
        if address.is_private and self._is_unsure(address, text, scope):
            return self._hop(address)
        return self._remembered(text, address)

    def _forwarded(self, hop: Hop, scope: Scope) -> Hop:
        """The first hop from the right that is no trusted proxy, or the last one that can be read."""
        lines = [value for name, value in scope["headers"] if name == self._header]
        for text in self._hops(lines):
            before = self._seen.get(text) or self._read(text)
            if before is None:
                break
            hop = before
            if not hop.trusted:
                break
        if hop.key is None:
            self._warn_once(_NO_ADDRESS)
        return hop

    def _read(self, text: str) -> Hop | None:
        """A forwarded hop, met for the first time; ``None`` for what is no address."""
        address = parse_address(text)
        return None if address is None else self._remembered(text, address)

    def _remembered(self, text: str, address: Address) -> Hop:
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        hop = self._seen[text] = self._hop(address)
        return hop

    def _hop(self, address: Address) -> Hop:
        return Hop(client_of(address, self._prefix), is_in(address, self._trusted), address)

    def _is_unsure(self, address: Address, text: str, scope: Scope) -> bool:
        """Whether a private address may yet turn out to be a proxy's that should be trusted, and is not."""
        if self._looks <= 0 or is_in(address, self._trusted):
            return False
        self._looks -= 1
        if any(name == self._header for name, _ in scope["headers"]):
            self._looks = 0
            self._warn_once(_NOT_TRUSTED, text, self._header.decode(), text)
        return True

    def _warn_once(self, message: str, *arguments: object) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message, *arguments)


def header_name(name: str, example: str) -> bytes:
    """The name of a header as it is found in a scope; ``ConfigurationError`` for what is none."""
    if isinstance(name, str) and name.isascii() and name.strip() == name != "":
        return name.lower().encode()
    raise ConfigurationError(f"the name of a header is ASCII and not empty, not {name!r}: {example}")


class _Within(ScopeTest):
    """Whether the client that a key sees is in some networks."""

    def __init__(self, key: client_ip, networks: tuple[Network, ...]) -> None:
        self._key = key
        self._networks = networks
        self._known = lru_cache(maxsize=MAX_SEEN)(partial(is_in, networks=networks))

    def __repr__(self) -> str:
        return f"{self._key!r}.within({', '.join(repr(str(network)) for network in self._networks)})"

    def of(self, scope: Scope) -> bool:
        """Whether the client of this scope is there."""
        address = self._key.address(scope)
        return address is not None and self._known(address)


def _listed(trusted_proxies: Iterable[str]) -> list[str]:
    if isinstance(trusted_proxies, str):
        return [trusted_proxies]
    if isinstance(trusted_proxies, Iterable):
        return [*trusted_proxies]
    raise ConfigurationError(f"trusted_proxies are networks, not {trusted_proxies!r}: {_TRUSTED}")


def _networks(texts: Iterable[str], example: str) -> Iterator[Network]:
    for text in texts:
        if not isinstance(text, str):  # a number would pass for an address, and so would bytes
            raise ConfigurationError(f"a network is written as text, not {text!r}: {example}")
        try:
            yield parse_network(text)
        except ValueError as error:
            raise ConfigurationError(f"{error}: {example}") from error


def _reader(header: bytes) -> Callable[[Sequence[bytes]], Iterator[str]]:
    return forwarded_hops if header == b"forwarded" else listed_hops


_NO_ADDRESS = (
    "a request came without a client address, so client_ip() has no key for it and it is not limited: behind a Unix "
    'socket, use client_ip(trusted_proxies=["unix"]) with a proxy that writes a forwarding header, or another key '
    "(docs/warnings.md#a-request-without-an-address)"
)
_NOT_AN_ADDRESS = (
    "the server says that the client's address is %r, which is none: all such clients share one bucket. "
    "Does the server believe forwarding headers of anybody? (docs/warnings.md#an-address-that-is-none)"
)
_NOT_TRUSTED = (
    "a request from %r carries %s, which is not believed, so all clients behind that address share one bucket: "
    "client_ip(trusted_proxies=[%r]) if it is your proxy (docs/warnings.md#a-peer-that-is-not-trusted)"
)
