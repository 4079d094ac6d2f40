"""The key by the client's address, as the peer's or as trusted proxies report it."""

from __future__ import annotations

import logging
import tracemalloc
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, client_ip
from tests.support.asgi import http

PROXIES = ["10.0.0.0/8", "2001:db8:ffff::/48", "198.51.100.7"]
PROXY = "10.0.0.1"


def key_of(peer: str, *forwarded: str | bytes, trusted: list[str] | None = None, prefix: int = 64) -> str | None:
    """The key of a request from ``peer`` with these values of X-Forwarded-For."""
    values = [value.encode() if isinstance(value, str) else value for value in forwarded]
    scope = http(client=(peer, 50_000), headers=[(b"x-forwarded-for", value) for value in values])
    return client_ip(trusted or [], ipv6_prefix=prefix, nat64=["2001:db8:64::/96"]).of(scope)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("2001:db8:64::192.0.2.1", "192.0.2.1"),
        ("2002:c000:0201:1::7", "192.0.2.1"),
        ("2001:0:102:304:8000:63bf:3fff:fdfe", "192.0.2.1"),
    ],
)
def test_the_peer_is_the_client(peer: str, expected: str) -> None:
    """The key is the peer's address in one spelling, IPv4-mapped as IPv4, IPv6 by its network.

    A translator's many clients have a key each. A tunnel's one client has one key, whatever it varies.
    """
    assert key_of(peer) == expected


@pytest.mark.parametrize("peer", ["192.0.2.1", "11.0.0.1", "198.51.100.8", "2001:db8:fffe::1", "testclient"])
def test_forwarded_headers_of_untrusted_peers_are_ignored(peer: str) -> None:
    """A peer that is no trusted proxy is the client itself, whatever its headers say; by default, no peer is one."""
    assert key_of(peer, "203.0.113.9", trusted=PROXIES) == key_of(peer)
    assert key_of(PROXY, "203.0.113.9") == PROXY


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9,192.0.2.1,10.0.0.2"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1, 10.0.0.3, 2001:db8:ffff::2"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1", "10.0.0.2"], "192.0.2.1"),
        (["192.0.2.1, 10.0.0.2:4711, [2001:db8:ffff::2]:4711"], "192.0.2.1"),
        (["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
        ([], PROXY),
        (["192.0.2.1, 10.0.0.3, unknown", "10.0.0.2"], "10.0.0.2"),
    ],
)
def test_the_header_is_read_from_the_right(forwarded: list[str | bytes], expected: str) -> None:
    """Behind a trusted proxy the first address from the right that is no proxy is the client, in any spelling.

    If every address is a trusted proxy, it is the furthest one. A text that cannot be parsed never becomes a key: the
    request counts for the proxy that passed it on.
    """
    assert key_of(PROXY, *forwarded, trusted=PROXIES) == expected


@pytest.mark.parametrize(
    ("prefix", "expected"), [(128, "2001:db8:1:2:3:4:5:6/128"), (56, "2001:db8:1::/56"), (1, "::/1")]
)
def test_ipv6_clients_are_grouped_by_prefix(prefix: int, expected: str) -> None:
    """All addresses of one network are one client, which can use any of them without effort."""
    assert key_of("2001:db8:1:2:3:4:5:6", prefix=prefix) == expected
    assert key_of(PROXY, "2001:db8:1:2:3:4:5:6", trusted=PROXIES, prefix=prefix) == expected


@pytest.mark.parametrize("client", [None, ("", 0), (None, 0), []], ids=repr)
def test_without_an_address_there_is_no_key_and_one_warning(client: object, caplog: pytest.LogCaptureFixture) -> None:
    """Requests over a Unix socket do not share one bucket: they have no key, and one warning is logged."""
    key = client_ip()
    assert [key.of(http(client=client)) for _ in range(3)] == [None, None, None]
    assert [(record.name, record.levelno) for record in caplog.records] == [("asgi_ratelimit", logging.WARNING)]


@pytest.mark.parametrize(
    "wrong", ["*", "unix:", "10.0.0.1/8", "10.0.0.0/33", "example.org", "cloudflair", "", None, 10, b"\x0a\x00\x00\x01"]
)
def test_proxies_that_cannot_be_are_refused(wrong: Any) -> None:
    """At start-up, quoted, with a right example. A number or bytes would pass for some address."""
    with pytest.raises(ConfigurationError, match=r'trusted_proxies=\["10.0.0.0/8"') as refused:
        client_ip(["10.0.0.0/8", wrong])
    assert str(wrong) in str(refused.value)


@pytest.mark.parametrize("wrong", [0, 129, 64.5, "64", None, True], ids=repr)
def test_prefixes_that_cannot_be_are_refused(wrong: int) -> None:
    """A prefix is a whole number from 1 to 128; anything else is refused at start-up, quoted."""
    with pytest.raises(ConfigurationError, match=f"not {wrong!r}: .*ipv6_prefix=64"):
        client_ip(ipv6_prefix=wrong)
    with pytest.raises(ConfigurationError, match=r"IPv6 networks of 96 bits, not .*2001:db8::/64"):
        client_ip(nat64=["2001:db8::/64"])


@pytest.mark.parametrize("wrong", ["", "x real ip", "Forwarded:", "x-réal-ip", None, b"x-real-ip"], ids=repr)
def test_headers_that_cannot_be_are_refused(wrong: Any) -> None:
    """A wrong name is refused at start-up, quoted, with a right example."""
    with pytest.raises(ConfigurationError, match=r'forwarded_header="forwarded"') as refused:
        client_ip(forwarded_header=wrong)
    assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("client", [None, ("", 0)], ids=repr)
def test_the_proxy_behind_a_unix_socket_may_be_trusted(client: object, caplog: pytest.LogCaptureFixture) -> None:
    """A peer without an address comes through the file system: with "unix", the header that it sends counts."""
    scope = http(client=client, headers=[(b"x-forwarded-for", b"6.6.6.6, 192.0.2.1")])
    assert client_ip(["unix"]).of(scope) == "192.0.2.1"
    assert client_ip("unix").of(scope) == "192.0.2.1"
    assert not caplog.records
    assert client_ip(PROXIES).of(scope) is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "true-client-ip"])
@pytest.mark.parametrize(("peer", "trusted"), [("8.8.8.8", []), ("10.0.0.5", ["10.0.0.6"]), ("fe80::1%eth0", ["unix"])])
def test_a_header_of_a_peer_that_is_not_trusted_is_logged_once(
    peer: str, trusted: list[str], header: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All clients behind an untrusted proxy share a bucket: the warning names the header, the peer and the remedy."""
    key = client_ip(trusted)
    for _ in range(2):
        key.of(http(client=(peer, 1), headers=[(header.encode(), b"192.0.2.1")]))
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"its clients share one bucket until client_ip(trusted_proxies=['{peer}'])" in message
    assert "if it is a client of your proxy, start uvicorn with --no-proxy-headers" in message
    assert header in message


@pytest.mark.parametrize("peer", ["8.8.8.8", "2606:4900::1"])
def test_a_header_that_the_server_has_read_is_no_reason_to_warn(peer: str, caplog: pytest.LogCaptureFixture) -> None:
    """As uvicorn does it by default behind a local proxy: the peer is then the client that the header names."""
    key = client_ip()
    for value in (peer, f"192.0.2.1, {peer}", f"{peer}, 127.0.0.1"):
        assert key.of(http(client=(peer, 0), headers=[(b"x-forwarded-for", value.encode())])) is not None
    assert not caplog.records


@pytest.mark.parametrize("wide", ["0.0.0.0/0", "::/0", "128.0.0.0/1", "2000::/3", "::ffff:0.0.0.0/96"])
def test_to_trust_everybody_is_told(wide: str, caplog: pytest.LogCaptureFixture) -> None:
    """At start: each client would write its own address. A private network may be as large as it likes."""
    client_ip(trusted_proxies=["10.0.0.0/8", "fc00::/7", "unix", "cloudflare"])
    assert not caplog.records
    client_ip(trusted_proxies=["10.0.0.0/8", wide])
    (message,) = [record.getMessage() for record in caplog.records]
    assert "everybody" in message
    assert 'client_ip(trusted_proxies=["cloudflare"])' in message


PIECES = ["192.0.2.1", "10.0.0.1", "2001:db8::1", "for=", "[", "]", *'",;% \\x', ":80", "unknown"]
VALUES = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40), max_size=4)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
@given(values=VALUES, peer=st.sampled_from([PROXY, "192.0.2.7", "nowhere", "::1"]))
def test_whatever_is_forwarded_the_key_is_a_client_s(header: str, values: list[str], peer: str) -> None:
    """It is an address or a network in its one spelling, and for an untrusted peer always that peer's own."""
    scope = http(client=(peer, 1), headers=[(header.encode(), value.encode()) for value in values])
    key = client_ip(PROXIES, forwarded_header=header).of(scope)
    assert key is not None
    if peer == PROXY:
        assert str(ip_network(key)).removesuffix("/32") == key
    else:
        assert key == key_of(peer)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_addresses_that_are_made_up_do_not_pile_up_in_memory(header: str) -> None:
    """New addresses with each request, or new long texts for one, do not fill the process's memory."""
    key = client_ip(["192.0.2.1"], forwarded_header=header)
    tracemalloc.start()
    try:
        for number in range(2_000):
            text = b"fe80::1%%%08d" % number + b"x" * 8192
            key.of(http(headers=[(header.encode(), b'for="[%b]"' % text if header == "forwarded" else text)]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
