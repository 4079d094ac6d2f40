"""Addresses as packed bytes: parsing them, grouping them by client, and the lists of them in forwarding headers.

A client may have written everything in a forwarding header, except what trusted proxies append at its right end. So
lists are read from the right, and nothing to the left of an address changes how that address is read.
No ``await``, no clock, no lock, no logging in this module; the networks of CDNs are read from a file at first use.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop

from .cdn_networks import cdn_networks

MAX_FORWARDED = 32
"""The most forwarded addresses that are followed."""

MAX_TEXT = 100
"""The longest text of an address that is parsed, with brackets, zone and port."""

_MAX_ELEMENT = 1000

_MAPPED = bytes(10) + b"\xff\xff"
_NAT64 = bytes.fromhex("0064ff9b") + bytes(8)
_TEREDO = bytes.fromhex("20010000")
_SIX_TO_FOUR = bytes.fromhex("2002")
_EMBEDDING = (_NAT64, _TEREDO, _SIX_TO_FOUR)
_ALL_ZERO = bytes(12)

_PAIR = re.compile(
    r"""[ \t]*+ (?: ([A-Za-z0-9!\#$%&'*+.^_`|~-]++) = (?: "([^"\\]*+)" | ([^\s",;=\\]*+) ) )?+ [ \t]*+ (?: ; | \Z )""",
    re.VERBOSE,
)
"""A pair of a ``Forwarded`` element: a name and a value, quoted or not. No address needs an escape, so none is read."""


def strict(inet_pton: Callable[[int, str], bytes]) -> Callable[[int, str], bytes]:
    """``inet_pton`` if it refuses leading zeros, as it should; otherwise a wrapper that refuses them.

    An IPv4 address then has exactly one text, which can be its key.
    """
    try:
        inet_pton(AF_INET, "010.0.0.1")
    except OSError:
        return inet_pton

    def strict_inet_pton(family: int, text: str) -> bytes:
        packed = inet_pton(family, text)
        if family == AF_INET and inet_ntop(family, packed) != text:
            raise OSError(f"leading zeros in {text!r}")
        return packed

    return strict_inet_pton


pack = strict(socket.inet_pton)
"""``pack(family, text)``: the packed address. Raises ``OSError`` or ``ValueError`` for anything else."""


def parse_address(text: str) -> bytes | None:
    """The packed address of a text that may have a port, brackets or a zone, IPv4-mapped as IPv4; else ``None``."""
    if len(text) > MAX_TEXT:
        return None
    text = text.strip()
    try:
        return unmapped(pack(AF_INET6, text)) if ":" in text else pack(AF_INET, text)
    except (OSError, ValueError):
        return _parse_decorated(text)


def _parse_decorated(text: str) -> bytes | None:
    bare = _without_port(text).partition("%")[0]
    try:
        return unmapped(pack(AF_INET6 if ":" in bare else AF_INET, bare))
    except (OSError, ValueError):
        return None


def _without_port(text: str) -> str:
    """``[2001:db8::1]:80`` and ``192.0.2.1:80`` without their port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def unmapped(packed: bytes) -> bytes:
    """An IPv4-mapped IPv6 address as IPv4; any other address as it is."""
    return packed[12:] if packed.startswith(_MAPPED) else packed


def client_key(packed: bytes, ipv6_prefix: int) -> str:
    """The key of the client at an address: the IPv4 address, or the IPv6 network of ``ipv6_prefix`` bits.

    An IPv6 address of a translator or tunnel (NAT64, RFC 6052; 6to4, RFC 3056; Teredo, RFC 4380) has the key of the
    IPv4 host in it: all hosts of a translator share one prefix, and one host of a tunnel has 65,536 prefixes or more.
    """
    if len(packed) == 4:
        return inet_ntop(AF_INET, packed)
    if packed.startswith(_EMBEDDING):
        return inet_ntop(AF_INET, host_of(packed))
    number = int.from_bytes(packed, "big") >> 128 - ipv6_prefix << 128 - ipv6_prefix
    if ipv6_prefix > 96 and packed.startswith(_ALL_ZERO):  # inet_ntop writes "::192.0.2.1", and not everywhere
        return str(IPv6Network((number, ipv6_prefix)))
    return f"{inet_ntop(AF_INET6, number.to_bytes(16, 'big'))}/{ipv6_prefix}"


def host_of(packed: bytes) -> bytes:
    """The IPv4 host in an address of a translator or tunnel; any other address as it is."""
    if not packed.startswith(_EMBEDDING):
        return packed
    if packed.startswith(_SIX_TO_FOUR):
        return packed[2:6]
    if packed.startswith(_TEREDO):
        return bytes([byte ^ 0xFF for byte in packed[12:]])
    return packed[12:]


class Networks:
    """A set of networks; ``packed in networks`` says whether one of them has this packed address.

    The word of a CDN stands for all of its networks. IPv4-mapped networks are IPv4. Raises ``ValueError`` for a text
    that is neither a network nor such a word.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: list[str] = []
        by_mask: dict[int, dict[int, set[int]]] = {4: {}, 6: {}}
        for text in texts:
            members = cdn_networks().get(text) if text.isalpha() else None
            networks = [_parse_network(member) for member in members or (text,)]
            self.texts.append(str(networks[0]) if members is None else text)
            for network in networks:
                masked = by_mask[network.version].setdefault(int(network.netmask), set())
                masked.add(int(network.network_address))
        self._ipv4, self._ipv6 = tuple(by_mask[4].items()), tuple(by_mask[6].items())

    def __contains__(self, packed: bytes) -> bool:
        number = int.from_bytes(packed, "big")
        for mask, networks in self._ipv4 if len(packed) == 4 else self._ipv6:  # noqa: SIM110  # any() takes more calls
            if number & mask in networks:
                return True
        return False


def is_wide(text: str) -> bool:
    """Whether a network contains a considerable part of all public addresses, as 0.0.0.0/0 or one half of it does."""
    if text.isalpha():
        return False
    network = _parse_network(text)
    if network.version == 4:
        return network.prefixlen < 8
    return network.prefixlen < 16 and network.network_address.packed[0] < 0xFC  # private ones are above


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else IPv4Network((mapped, network.prefixlen - 96))


def listed_addresses(values: Sequence[bytes]) -> list[str]:
    """The addresses in the values of ``X-Forwarded-For``, or any other header that lists them, from the right."""
    segments = b",".join(values).rsplit(b",", MAX_FORWARDED)[-MAX_FORWARDED:] if values else []
    return [segment.decode("latin-1") for segment in reversed(segments)]


def forwarded_addresses(values: Sequence[bytes]) -> Iterator[str]:
    """The ``for=`` nodes of ``Forwarded`` (RFC 7239) from the right; "" for an element without a readable one.

    A comma in quotes does not end an element. A quote that is never closed does not hide what is appended after it.
    """
    element = ""
    for segment in listed_addresses(values):
        element = f"{segment},{element}" if element else segment
        if len(element) > _MAX_ELEMENT:
            break
        if element.count('"') % 2 == 0:
            yield _node(element)
            element = ""
    if element:
        yield ""


def _node(element: str) -> str:
    """The value of the one ``for=`` of an element; "" if it has none or several, or is not a list of pairs."""
    nodes, position = [], 0
    while position < len(element):
        pair = _PAIR.match(element, position)
        if pair is None:
            return ""
        if pair[1] and pair[1].lower() == "for":
            nodes.append(pair[3] if pair[2] is None else pair[2])
        position = pair.end()
    return nodes[0] if len(nodes) == 1 else ""
