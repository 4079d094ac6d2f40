"""Addresses: read from what peers and proxies write, and told apart as clients.

Everything in a forwarding header may have been written by the client itself, but for what trusted proxies appended at
its right end. So chains are read from the right, and what stands to the left of a hop never changes how it is read.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_HOPS = 32
"""How many forwarded hops are followed, at the most."""

MAX_HOP = 100
"""The longest text of an address, with brackets, zone and port: nothing longer is read, or kept."""

_MAX_ELEMENT = 1000
_NAT64 = IPv6Network("64:ff9b::/96")
_PAIR = re.compile(
    r"""[ \t]*+ (?: ([A-Za-z0-9!\#$%&'*+.^_`|~-]++) = (?: "([^"\\]*+)" | ([^\s",;=\\]*+) ) )?+ [ \t]*+ (?: ; | \Z )""",
    re.VERBOSE,
)
"""A pair of a ``Forwarded`` element: a name and a value, in quotes or not. No address needs an escape: none is read."""


def parse_address(text: str) -> Address | None:
    """The address in a text that may carry a port, brackets or a zone, IPv4-mapped ones as IPv4; ``None`` for none."""
    if len(text) > MAX_HOP:
        return None
    try:
        address = ip_address(_bare(text))
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address
    return address


def parse_network(text: str) -> Network:
    """The network that a text names, of IPv4-mapped addresses as that of IPv4; ``ValueError`` for none."""
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else ip_network((mapped, network.prefixlen - 96))


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Whether one of the networks has this address."""
    return any(address in network for network in networks)


def client_of(address: Address, ipv6_prefix: int) -> str:
    """Who is behind an address: IPv4 by itself, IPv6 by its network of ``ipv6_prefix`` bits.

    An IPv6 address of a translator or tunnel (NAT64, RFC 6052; 6to4, RFC 3056; Teredo, RFC 4380) is the IPv4 host in
    it: one prefix would hold all hosts of the translator, and one host has 65,536 prefixes and more of a tunnel.
    """
    if isinstance(address, IPv4Address):
        return str(address)
    inner = _inner_ipv4(address)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False) if inner is None else inner)


def listed_hops(lines: Sequence[bytes]) -> Iterator[str]:
    """The hops of an ``X-Forwarded-For``, or any other header that lists addresses, from the right."""
    return iter(_segments_from_the_right(lines))


def forwarded_hops(lines: Sequence[bytes]) -> Iterator[str]:
    """The ``for=`` nodes of ``Forwarded`` (RFC 7239) from the right, each "" where an element has none to be read.

    A comma in quotes does not end an element. What is appended after a quote that somebody left open is read in
    spite of it.
    """
    element = ""
    for segment in _segments_from_the_right(lines):
        element = f"{segment},{element}" if element else segment
        if len(element) > _MAX_ELEMENT:
            break
        if element.count('"') % 2 == 0:
            yield _node(element)
            element = ""
    if element:
        yield ""


def _segments_from_the_right(lines: Sequence[bytes]) -> list[str]:
    segments = b",".join(lines).rsplit(b",", MAX_HOPS)[-MAX_HOPS:] if lines else []
    return [segment.decode("latin-1") for segment in reversed(segments)]


def _node(element: str) -> str:
    """The value of the one ``for=`` of an element; "" if it has none, several, or is no list of pairs."""
    nodes, at = [], 0
    while at < len(element):
        pair = _PAIR.match(element, at)
        if pair is None:
            return ""
        if pair[1] and pair[1].lower() == "for":
            nodes.append(pair[3] if pair[2] is None else pair[2])
        at = pair.end()
    return nodes[0] if len(nodes) == 1 else ""


def _bare(text: str) -> str:
    """``[2001:db8::1]:80``, ``192.0.2.1:80`` and ``fe80::1%eth0`` without their port, brackets and zone."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.partition("%")[0]


def _inner_ipv4(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.teredo[1] if address.teredo else address.sixtofour
