"""Addresses: read from whatever was written, and told apart as clients."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.keys.addresses import (
    MAX_HOP,
    MAX_HOPS,
    client_of,
    forwarded_hops,
    is_in,
    listed_hops,
    parse_address,
    parse_network,
)

ADDRESSES = st.ip_addresses(v=4) | st.ip_addresses(v=6)
MARKS = ['for="', '"', "\\", 'for="a\\', ",", ";"]
JUNK = st.text(st.characters(codec="latin-1"), max_size=60) | st.sampled_from(MARKS)


def spellings(address: IPv6Address) -> list[str]:
    """Ways to write one IPv6 address, alone and as a hop."""
    short, long = address.compressed, address.exploded
    bare = [short, long, short.upper(), f" {long}\t", f"{short}%eth0"]
    return [*bare, *(f"[{text.strip()}]{port}" for text in bare for port in ("", ":0", ":65535", ":_port"))]


@given(ADDRESSES)
def test_every_spelling_of_an_address_is_that_address(address: object) -> None:
    """Whatever its case, zeros, brackets, zone and port are."""
    texts = spellings(address) if isinstance(address, IPv6Address) else [f"{address}", f"{address}:80", f" {address} "]
    expected = getattr(address, "ipv4_mapped", None) or address
    assert {parse_address(text) for text in texts} == {expected}


@pytest.mark.parametrize(
    "text", ["::ffff:192.0.2.1", "::FFFF:C000:0201", "0:0:0:0:0:ffff:c000:201", "[::ffff:c000:201]"]
)
def test_mapped_addresses_are_ipv4(text: str) -> None:
    """However an IPv4-mapped address is written, it is the IPv4 address: that is what it means on a dual stack."""
    assert parse_address(text) == ip_address("192.0.2.1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "unknown",
        "_hidden",
        "testclient",
        "010.0.0.1",
        "10.0.0.01",
        "10.0.0",
        "10.0.0.1.2",
        "0x0a000001",
        "167772161",
        "256.0.0.1",
        "10.0.0.1/8",
        "10.0.0.1 10.0.0.2",
        "10.0.0.1\x00",
        "¹0.0.0.1",
        "١0.0.0.1",
        "2001:db8::1::2",
        "[",
        "[]",
        "]",
        "%eth0",
        ":80",
        "10.0.0.1" + " " * MAX_HOP,
        "fe80::1%" + "x" * MAX_HOP,
    ],
    ids=repr,
)
def test_what_is_no_address_is_none(text: str) -> None:
    """Nothing is guessed: leading zeros, which some read as octal, hosts, ranges, long texts."""
    assert parse_address(text) is None


@given(st.text(max_size=120))
def test_a_text_is_an_address_or_none(text: str) -> None:
    """Whatever is written, reading it never fails."""
    parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("64:ff9b:1::192.0.2.1", "64:ff9b:1::/64"),
        ("2002:c000:0201::1", "192.0.2.1"),
        ("2002:c000:0201:ffff:1:2:3:4", "192.0.2.1"),
        ("2001:0:102:304:8000:63bf:3fff:fdfe", "192.0.2.1"),
        ("2001:0:506:708:0:ffff:3fff:fdfe", "192.0.2.1"),
        ("::192.0.2.1", "::/64"),
        ("::1", "::/64"),
    ],
)
def test_clients_behind_an_address(text: str, expected: str) -> None:
    """A translator's many clients are told apart, and a tunnel's one client is one, whatever of it it can vary."""
    address = parse_address(text)
    assert address is not None
    assert client_of(address, 64) == expected


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(1, 128))
def test_ipv4_clients_are_never_grouped(one: object, other: object, prefix: int) -> None:
    """The prefix is for IPv6 alone: two IPv4 clients stay two, however their addresses are written."""
    for form in ("{}", "::ffff:{}", "64:ff9b::{}"):
        addresses = [parse_address(form.format(each)) for each in (one, other)]
        keys = {client_of(address, prefix) for address in addresses if address is not None}
        assert len(keys) == len({one, other})


def test_a_tunnel_lends_nobody_trust() -> None:
    """Inside a 6to4 address anybody's address can be: it tells clients apart, but makes no proxy of anyone."""
    tunnel = parse_address("2002:0a00:0001::1")
    assert tunnel is not None
    assert client_of(tunnel, 64) == "10.0.0.1"
    assert not is_in(tunnel, [parse_network("10.0.0.0/8")])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        ([b""], [""]),
        ([b"a"], ["a"]),
        ([b"a, b,c"], ["c", " b", "a"]),
        ([b"a", b"b, c"], [" c", "b", "a"]),
        ([b"a,"], ["", "a"]),
        ([b"\xff"], ["ÿ"]),
    ],
)
def test_a_list_is_read_from_the_right(lines: list[bytes], expected: list[str]) -> None:
    """All lines of a header are one list (RFC 9110, section 5.3), and its end comes first."""
    assert list(listed_hops(lines)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("for=192.0.2.1", ["192.0.2.1"]),
        ("For=192.0.2.1", ["192.0.2.1"]),
        ('for="192.0.2.1:80"', ["192.0.2.1:80"]),
        ('for="[2001:db8::1]:80"', ["[2001:db8::1]:80"]),
        ("for=[2001:db8::1]:80", ["[2001:db8::1]:80"]),
        ("proto=https;for=192.0.2.1;by=10.0.0.1", ["192.0.2.1"]),
        ("for = 192.0.2.1", [""]),
        (" for=192.0.2.1 ; proto=https ", ["192.0.2.1"]),
        ("for=192.0.2.1;;proto=https;", ["192.0.2.1"]),
        ("for=192.0.2.1, for=192.0.2.2", ["192.0.2.2", "192.0.2.1"]),
        ('for=192.0.2.1;host="a,b", for=192.0.2.2', ["192.0.2.2", "192.0.2.1"]),
        ('for=192.0.2.1;host="a;for=6.6.6.6"', ["192.0.2.1"]),
        ("for=unknown, for=_hidden", ["_hidden", "unknown"]),
        ("proto=https", [""]),
        ("for=", [""]),
        ("for", [""]),
        ("192.0.2.1", [""]),
        ("for=192.0.2.1;for=192.0.2.2", [""]),
        ("for=192.0.2.1 for=192.0.2.2", [""]),
        ('for="192.0.2.1\\""', [""]),
        ('for="192.0.2.1', [""]),
        ('xfor=192.0.2.1;"for=192.0.2.2"', [""]),
        ("for=192.0.2.1,", ["", "192.0.2.1"]),
        ("", [""]),
    ],
)
def test_a_forwarded_header_is_read_from_the_right(line: str, expected: list[str]) -> None:
    """The one for= of each element, its quotes taken off; "" where there is none, several, or no such syntax."""
    assert list(forwarded_hops([line.encode()])) == expected


@given(JUNK, ADDRESSES, st.booleans())
def test_nothing_on_the_left_changes_what_is_on_the_right(junk: str, address: object, in_two_lines: bool) -> None:
    """A client may write what it likes, an open quote included: what the proxy appends is read all the same."""
    node = f'"[{address}]:80"' if isinstance(address, IPv6Address) else f"{address}"
    for reader, hop in ((forwarded_hops, f'for={node};host="a,b;for=c"'), (listed_hops, f"{address}")):
        alone = next(reader([hop.encode()]))
        lines = [junk.encode("latin-1"), hop.encode()]
        assert next(reader(lines if in_two_lines else [b",".join(lines)])) == alone


@pytest.mark.parametrize("reader", [listed_hops, forwarded_hops])
def test_a_chain_is_not_followed_for_ever(reader: object) -> None:
    """Of 500 hops only the nearest are read."""
    hops = list(reader([b"for=10.0.0.1," * 499 + b"for=10.0.0.2"]))  # type: ignore[operator]
    assert len(hops) == MAX_HOPS
    assert hops[0].endswith("10.0.0.2")


def test_an_element_is_not_read_for_ever() -> None:
    """Nor is one with an endless quote."""
    assert list(forwarded_hops([b'for=10.0.0.1;x="' + b"," * 100_000])) == [""] * MAX_HOPS
    assert list(forwarded_hops([b'for=10.0.0.1;x="' + b"a" * 100_000 + b'"'])) == [""]
