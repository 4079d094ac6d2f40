"""Addresses: parsed from any text, grouped by client, read from forwarding headers, and those of CDNs."""

from __future__ import annotations

import tomllib
from datetime import date
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import client_ip
from asgi_ratelimit.keys.addresses import (
    MAX_FORWARDED,
    MAX_TEXT,
    Networks,
    cdn_networks,
    client_key,
    forwarded_nodes,
    listed_addresses,
    parse_address,
)
from tests.support.asgi import http
from tests.support.server import ROOT

ADDRESSES = st.ip_addresses(v=4) | st.ip_addresses(v=6)
MARKS = ['for="', '"', "\\", 'for="a\\', ",", ";"]
GROUPS = ["", "0", "00", "1", "ffff", "FFFF", "02001", "db8", "c000", "192.0.2.1", "192.0.2.01", "10.0.0"]
JUNK = st.text(st.characters(codec="latin-1"), max_size=60) | st.sampled_from(MARKS)


def spellings(address: IPv6Address) -> list[str]:
    """Ways to write one IPv6 address, alone and in a forwarding header."""
    short, long = address.compressed, address.exploded
    bare = [short, long, short.upper(), f" {long}\t", f"{short}%eth0"]
    return [*bare, *(f"[{text.strip()}]{port}" for text in bare for port in ("", ":0", ":65535", ":_port"))]


@given(ADDRESSES)
def test_every_spelling_of_an_address_is_that_address(address: IPv4Address | IPv6Address) -> None:
    """Case, zeros, brackets, zone and port make no difference."""
    texts = spellings(address) if isinstance(address, IPv6Address) else [f"{address}", f"{address}:80", f" {address} "]
    expected = getattr(address, "ipv4_mapped", None) or address
    assert {parse_address(text) for text in texts} == {expected.packed}


NO_ADDRESSES = ["", " ", "unknown", "_hidden", "010.0.0.1", "10.0.0", "0x0a000001", "167772161", "256.0.0.1", "[", "[]"]
NO_ADDRESSES += ["10.0.0.1/8", "10.0.0.1 10.0.0.2", "10.0.0.1\x00", "¹0.0.0.1", "2001:db8::1::2", "%eth0", ":80"]


@pytest.mark.parametrize("text", [*NO_ADDRESSES, "10.0.0.1" + " " * MAX_TEXT, "fe80::1%" + "x" * MAX_TEXT], ids=repr)
def test_what_is_no_address_is_none(text: str) -> None:
    """Nothing is guessed: leading zeros, which some read as octal, hosts, ranges, long texts."""
    assert parse_address(text) is None


@given(st.text("0123456789abcdefF:.", max_size=30) | st.lists(st.sampled_from(GROUPS), max_size=9).map(":".join))
def test_the_syntax_is_that_of_ipaddress(text: str) -> None:
    """A text without port, brackets and zone is an address exactly where the standard library says so."""
    try:
        address = ip_address(text)
    except ValueError:
        assert parse_address(text) is None or text.count(":") == 1
    else:
        assert parse_address(text) == (getattr(address, "ipv4_mapped", None) or address).packed


EMBEDDING = [IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96", "2001::/32", "2002::/16")]
SPARSE = st.lists(st.sampled_from([0, 0, 0, 1, 0x0DB8, 0xC000, 0xFFFF]), min_size=8, max_size=8).map(
    lambda groups: IPv6Address(b"".join([group.to_bytes(2, "big") for group in groups]))
)


@given(st.ip_addresses(v=6) | SPARSE, st.integers(1, 128))
def test_the_key_of_ipv6_is_the_text_of_its_network(address: IPv6Address, prefix: int) -> None:
    """With any number of zeros, for every prefix; the C library writes an IPv4 address at the end in its own way."""
    if not any(address in network for network in EMBEDDING):
        assert IPv6Network(client_key(address.packed, prefix)) == IPv6Network((address, prefix), strict=False)


@given(st.ip_addresses(v=4), st.integers(0, 2**80 - 1), st.integers(1, 128))
def test_the_key_of_a_tunnel_is_that_of_its_host(host: IPv4Address, rest: int, prefix: int) -> None:
    """The standard library finds the same IPv4 hosts in addresses of 6to4 and Teredo."""
    six_to_four = IPv6Address(0x2002 << 112 | int(host) << 80 | rest)
    teredo = IPv6Address(0x20010000 << 96 | rest << 16 & (2**96 - 2**32) | int(host) ^ 0xFFFFFFFF)
    assert six_to_four.sixtofour == host
    assert teredo.teredo is not None
    assert teredo.teredo[1] == host
    assert client_key(six_to_four.packed, prefix) == client_key(teredo.packed, prefix) == str(host)


MAPPED = IPv6Network("::ffff:0:0/96")
PREFIXES = st.tuples(st.ip_addresses(v=4), st.integers(0, 32)) | st.tuples(SPARSE, st.integers(0, 128))
NETWORKS = PREFIXES.map(lambda pair: ip_network(pair, strict=False)).filter(
    lambda network: network.version == 4 or not network.subnet_of(MAPPED)
)


@given(st.lists(NETWORKS, max_size=4), ADDRESSES | SPARSE)
def test_networks_have_the_addresses_that_ipaddress_says(networks: list[Any], address: Any) -> None:
    """Each version is for itself, and an IPv4-mapped address is IPv4."""
    packed = parse_address(str(address))
    assert packed is not None
    assert (packed in Networks(map(str, networks))) == any(ip_address(packed) in network for network in networks)


@pytest.mark.parametrize("text", ["::ffff:10.0.0.0/104", "::ffff:a00:0/104"])
def test_a_mapped_network_is_ipv4(text: str) -> None:
    """It is how a dual-stack server may write it."""
    networks = Networks([text])
    assert networks.texts == ["10.0.0.0/8"]
    assert ip_address("10.1.2.3").packed in networks
    assert ip_address("11.1.2.3").packed not in networks


def test_a_tunnel_lends_nobody_trust() -> None:
    """A 6to4 address may embed any IPv4 address. It is good for a key, but makes nobody a trusted proxy."""
    tunnel = parse_address("2002:0a00:0001::1")
    assert tunnel is not None
    assert client_key(tunnel, 64) == "10.0.0.1"
    assert tunnel not in Networks(["10.0.0.0/8"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('For="192.0.2.1:80"', ["192.0.2.1:80"]),
        ("proto=https;for=192.0.2.1;by=10.0.0.1", ["192.0.2.1"]),
        (" for=192.0.2.1 ;; proto=https; ", ["192.0.2.1"]),
        ("for=192.0.2.1, for=unknown", ["unknown", "192.0.2.1"]),
        ('for=192.0.2.1;host="a,b", for=192.0.2.2', ["192.0.2.2", "192.0.2.1"]),
        ('for=192.0.2.1;host="a;for=6.6.6.6"', ["192.0.2.1"]),
        ("proto=https", [""]),
        ("192.0.2.1", [""]),
        ("for=192.0.2.1;for=192.0.2.2", [""]),
        ("for=192.0.2.1 for=192.0.2.2", [""]),
        ('for="192.0.2.1', [""]),
    ],
)
def test_a_forwarded_header_is_read_from_the_right(value: str, expected: list[str]) -> None:
    """The one for= of each element, without quotes; "" where there is none, several, or another syntax."""
    assert list(forwarded_nodes([value.encode()])) == expected


@given(JUNK, ADDRESSES, st.booleans())
def test_nothing_on_the_left_changes_what_is_on_the_right(junk: str, address: object, in_two_values: bool) -> None:
    """A client may write anything, even an open quote: what the proxy appends is read all the same."""
    node = f'"[{address}]:80"' if isinstance(address, IPv6Address) else f"{address}"
    for reader, appended in ((forwarded_nodes, f'for={node};host="a,b;for=c"'), (listed_addresses, f"{address}")):
        alone = next(iter(reader([appended.encode()])))
        values = [junk.encode("latin-1"), appended.encode()]
        assert next(iter(reader(values if in_two_values else [b",".join(values)]))) == alone


@pytest.mark.parametrize("reader", [listed_addresses, forwarded_nodes])
def test_a_list_is_read_up_to_a_limit(reader: Any) -> None:
    """Of 500 addresses only the nearest are read."""
    addresses = list(reader([b"for=10.0.0.1," * 499 + b"for=10.0.0.2"]))
    assert len(addresses) == MAX_FORWARDED
    assert addresses[0].endswith("10.0.0.2")


def test_an_element_is_read_up_to_a_limit() -> None:
    """A quote without an end is given up."""
    assert list(forwarded_nodes([b'for=10.0.0.1;x="' + b"," * 100_000])) == [""] * MAX_FORWARDED
    assert list(forwarded_nodes([b'for=10.0.0.1;x="' + b"a" * 100_000 + b'"'])) == [""]


WORDS = {"cloudflare": "173.245.48.9", "cloudfront": "2600:9000:1000::9", "fastly": "2a04:4e40::9"}


@pytest.mark.parametrize(("word", "proxy"), WORDS.items())
def test_a_word_stands_for_the_networks_of_a_cdn(word: str, proxy: str) -> None:
    """Alone or beside others; whatever is not in them is not trusted."""
    key = client_ip(trusted_proxies=["10.0.0.0/8", word])
    forwarded = [(b"x-forwarded-for", b"198.51.100.1, " + proxy.encode())]
    assert key.of(http(client=(proxy, 1), headers=forwarded)) == "198.51.100.1"
    assert key.of(http(client=("10.0.0.1", 1), headers=forwarded)) == "198.51.100.1"
    assert key.of(http(client=("192.0.2.1", 1), headers=forwarded)) == "192.0.2.1"


def test_the_file_is_dated_and_holds_public_networks() -> None:
    """Each list has a date and a source, no network twice, and none that is wide or private."""
    entries = tomllib.loads((ROOT / "asgi_ratelimit" / "keys" / "cdn_networks.toml").read_text("utf-8"))
    assert set(entries) == set(WORDS) == set(cdn_networks())
    for word, entry in entries.items():
        networks = [ip_network(text) for text in cdn_networks()[word]]
        assert isinstance(entry["date"], date)
        assert entry["source"].startswith("https://")
        assert len(set(networks)) == len(networks)
        assert all(each.is_global and each.prefixlen >= 12 for each in networks)
