"""Addresses as packed bytes: parsing them, grouping them by client, and the lists of them in forwarding headers.

A client may have written everything in a forwarding header, except what trusted proxies append at its right end. So
lists are read from the right, and nothing to the left of an address changes how that address is read.
No ``await``, no clock, no lock, no logging in this module; the networks of CDNs are read from a file at first use.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

# The most forwarded addresses that are followed.
MAX_FORWARDED = 32

# The longest text of an address that is parsed, with brackets, zone and port.
MAX_TEXT = 100

# Stands for the other end of a Unix socket among the trusted proxies.
UNIX = "unix"

_MAX_ELEMENT = 1000

_MAPPED = bytes(10) + b"\xff\xff"
_NAT64 = bytes.fromhex("0064ff9b") + bytes(8)
_TEREDO = bytes.fromhex("20010000")
_SIX_TO_FOUR = bytes.fromhex("2002")
_EMBEDDING = (_NAT64, _TEREDO, _SIX_TO_FOUR)

# A pair of a ``Forwarded`` element: a name and a value, quoted or not. No address needs an escape, so none is read.
_PAIR = re.compile(
    r"""[ \t]*+ (?: ([A-Za-z0-9!\#$%&'*+.^_`|~-]++) = (?: "([^"\\]*+)" | ([^\s",;=\\]*+) ) )?+ [ \t]*+ (?: ; | \Z )""",
    re.VERBOSE,
)


def parse_address(text: str) -> bytes | None:
    """The packed address of a text that may have a port, brackets or a zone, IPv4-mapped as IPv4; else ``None``."""
    if len(text) > MAX_TEXT:
        return None
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        if ":" not in text:
            return inet_pton(AF_INET, text)
        packed = inet_pton(AF_INET6, text.partition("%")[0])
    except (OSError, ValueError):
        return None
    return packed[12:] if packed.startswith(_MAPPED) else packed


def client_key(packed: bytes, ipv6_prefix: int) -> str:
    """The key of the client at an address: the IPv4 address, or the IPv6 network of ``ipv6_prefix`` bits.

    An IPv6 address of a translator or tunnel (NAT64, RFC 6052; 6to4, RFC 3056; Teredo, RFC 4380) has the key of the
    IPv4 host in it: all hosts of a translator share one prefix, and one host of a tunnel has 65,536 prefixes or more.
    """
    if len(packed) == 4 or packed.startswith(_EMBEDDING):
        return inet_ntop(AF_INET, host_of(packed))
    number = int.from_bytes(packed, "big") >> 128 - ipv6_prefix << 128 - ipv6_prefix
    return f"{inet_ntop(AF_INET6, number.to_bytes(16, 'big'))}/{ipv6_prefix}"


def keys_named(text: str) -> list[str]:
    """The keys that a text may mean: itself, and for an IPv6 address its networks of the sizes that customers get."""
    packed = parse_address(text) if text.count(":") > 1 and not text.startswith("[") else None
    networks = [] if packed is None else [client_key(packed, bits) for bits in (128, 64, 60, 56, 52, 48)]
    return [text, *dict.fromkeys(networks)]


def host_of(packed: bytes) -> bytes:
    """The IPv4 host in an address of a translator or tunnel; any other address as it is."""
    if len(packed) == 4 or not packed.startswith(_EMBEDDING):
        return packed
    if packed.startswith(_SIX_TO_FOUR):
        return packed[2:6]
    if packed.startswith(_TEREDO):
        return bytes([byte ^ 0xFF for byte in packed[12:]])
    return packed[12:]


@cache
def cdn_networks() -> dict[str, tuple[str, ...]]:
    """The networks of each CDN by its word: a dated copy of what they publish, read at first use."""
    text = files("asgi_ratelimit.keys").joinpath("cdn_networks.toml").read_text("utf-8")
    return {word: tuple(entry["networks"].split()) for word, entry in tomllib.loads(text).items()}


class Networks:
    """A set of networks; ``packed in networks`` says whether one of them has this packed address.

    The word of a CDN stands for all of its networks, and ``"unix"``, the other end of a Unix socket, for none.
    IPv4-mapped networks are IPv4. Raises ``ValueError`` for anything but the text of a network or such a word.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: list[str] = []
        by_mask: dict[int, dict[int, set[int]]] = {4: {}, 6: {}}
        for text in texts:
            if not isinstance(text, str):  # ipaddress would accept a number or bytes as an address
                raise ValueError(f"a network is written as text, not {text!r}")
            is_word = text == UNIX or (text.isalpha() and text in cdn_networks())
            networks = [_parse_network(member) for member in (cdn_networks().get(text, ()) if is_word else (text,))]
            self.texts.append(text if is_word else str(networks[0]))
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
    return not text.isalpha() and _parse_network(text).prefixlen < 7  # those of private IPv6 addresses have 7 bits


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else IPv4Network((mapped, network.prefixlen - 96))


def listed_addresses(values: Sequence[bytes]) -> list[str]:
    """The addresses in the values of ``X-Forwarded-For``, or any other header that lists them, from the right."""
    segments = b",".join(values).rsplit(b",", MAX_FORWARDED)[-MAX_FORWARDED:] if values else []
    return [segment.decode("latin-1") for segment in reversed(segments)]


def forwarded_nodes(values: Sequence[bytes]) -> Iterator[str]:
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
