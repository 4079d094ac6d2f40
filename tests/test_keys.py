"""Keys: whose bucket a request is charged to."""

from __future__ import annotations

import logging
import tracemalloc

import pytest
from redis.asyncio import Redis
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, RedisStore, client_ip, header

from .asgi import ask, http, ok, websocket

PROXIES = ["10.0.0.0/8", "2001:db8:ffff::/48", "198.51.100.7"]
PROXY = "10.0.0.1"
SECRET = b"sk-live-4711"


def key_of(peer: str, *forwarded: str | bytes, trusted: list[str] | None = None, prefix: int = 64) -> str | None:
    """The key of a request from ``peer`` with these lines of X-Forwarded-For."""
    lines = [line.encode() if isinstance(line, str) else line for line in forwarded]
    scope = http(client=(peer, 50_000), headers=[(b"x-forwarded-for", line) for line in lines])
    return client_ip(trusted or [], ipv6_prefix=prefix).of(scope)


def header_key(*values: bytes, name: str = "x-api-key") -> str | None:
    """The key by x-api-key, or how ``name`` spells it, of a request with these values of it."""
    return header(name).of(http(headers=[(b"accept", b"*/*"), *((b"x-api-key", value) for value in values)]))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:C000:0201", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:0DB8:0001:0002::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("fe80::2%eth1", "fe80::/64"),
        ("::1", "::/64"),
        ("testclient", "testclient"),
    ],
)
def test_the_peer_is_the_client(peer: str, expected: str) -> None:
    """The key is the peer's address in one spelling, IPv4-mapped as IPv4, IPv6 by its network."""
    assert key_of(peer) == expected


@pytest.mark.parametrize("peer", ["192.0.2.1", "10.0.0.1", "127.0.0.1", "::1"])
def test_forwarded_headers_are_ignored_by_default(peer: str) -> None:
    """Without trusted proxies, what X-Forwarded-For says changes nothing, whoever the peer is."""
    assert key_of(peer, "203.0.113.9") == key_of(peer)


@pytest.mark.parametrize("peer", ["192.0.2.1", "11.0.0.1", "198.51.100.8", "2001:db8:fffe::1", "testclient"])
def test_forwarded_headers_of_strangers_are_ignored(peer: str) -> None:
    """A peer that is no trusted proxy is the client itself, whatever it says that it forwards."""
    assert key_of(peer, "203.0.113.9", trusted=PROXIES) == key_of(peer)


@pytest.mark.parametrize("proxy", ["10.0.0.1", "10.255.255.255", "::ffff:10.0.0.1", "2001:db8:ffff::1", "198.51.100.7"])
def test_trusted_proxies_are_networks_or_addresses(proxy: str) -> None:
    """A peer in a trusted network, of either version, or at a trusted address is believed."""
    assert key_of(proxy, "192.0.2.1", trusted=PROXIES) == "192.0.2.1"


@pytest.mark.parametrize("trusted", ["::ffff:10.0.0.1", "::ffff:10.0.0.0/104"])
def test_a_trusted_network_may_be_written_as_mapped(trusted: str) -> None:
    """IPv4-mapped IPv6 is IPv4 in trusted_proxies too: it is what a dual-stack server shows of its proxy."""
    assert key_of("::ffff:10.0.0.1", "192.0.2.1", trusted=[trusted]) == "192.0.2.1"


def test_one_trusted_proxy_may_be_a_text() -> None:
    """A single network needs no list."""
    scope = http(client=(PROXY, 1), headers=[(b"x-forwarded-for", b"192.0.2.1")])
    assert client_ip("10.0.0.0/8").of(scope) == "192.0.2.1"


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9,192.0.2.1,10.0.0.2"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1, 10.0.0.3, 2001:db8:ffff::2"], "192.0.2.1"),
        (["203.0.113.9, 10.0.0.3, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9", "192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1", "10.0.0.2"], "192.0.2.1"),
        (["  192.0.2.1\t"], "192.0.2.1"),
        (["192.0.2.1:4711"], "192.0.2.1"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["[::ffff:192.0.2.1]:4711"], "192.0.2.1"),
        (["2001:db8::1"], "2001:db8::/64"),
        (["[2001:db8::1]"], "2001:db8::/64"),
        (["[2001:db8::1]:4711"], "2001:db8::/64"),
        (["fe80::1%eth0"], "fe80::/64"),
        (["[fe80::1%25eth0]:4711"], "fe80::/64"),
        (["192.0.2.1, 10.0.0.2:4711"], "192.0.2.1"),
        (["192.0.2.1, [2001:db8:ffff::2]:4711"], "192.0.2.1"),
    ],
)
def test_the_chain_is_read_from_the_right(forwarded: list[str], expected: str) -> None:
    """Behind a trusted proxy the first hop from the right that is none is the client, in any spelling."""
    assert key_of(PROXY, *forwarded, trusted=PROXIES) == expected


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ([], PROXY),
        ([""], PROXY),
        ([","], PROXY),
        ([" , "], PROXY),
        (["192.0.2.1,"], PROXY),
        (["unknown"], PROXY),
        (["_hidden"], PROXY),
        (["192.0.2.010"], PROXY),
        (["192.0.2"], PROXY),
        (["0xC0.0.2.1"], PROXY),
        (["192.0.2.1 203.0.113.9"], PROXY),
        (['for="192.0.2.1"'], PROXY),
        ([b"\xff\xfe"], PROXY),
        (["192.0.2.1, unknown, 10.0.0.2"], "10.0.0.2"),
        (["192.0.2.1, 10.0.0.3, unknown", "10.0.0.2"], "10.0.0.2"),
    ],
)
def test_a_hop_that_is_no_address_counts_for_the_proxy(forwarded: list[str | bytes], expected: str) -> None:
    """A hop that cannot be read never becomes a key: the request counts for the proxy that passed it on."""
    assert key_of(PROXY, *forwarded, trusted=PROXIES) == expected


def test_a_chain_of_proxies_only_counts_for_the_furthest() -> None:
    """Where every hop is trusted, the one where the request came from is the client."""
    assert key_of(PROXY, "10.0.0.4, 10.0.0.3", "10.0.0.2", trusted=PROXIES) == "10.0.0.4"


@pytest.mark.parametrize("last_hop", ["192.0.2.1", "192.0.2.1, 10.0.0.2", "unknown"])
@pytest.mark.parametrize(
    "forged",
    [
        b"203.0.113.9",
        b"10.0.0.9",
        b"\xff\xfe",
        b"[",
        b"]:%",
        b",,,,",
        b"x" * 8192,
        b", ".join(b"203.0.113.%d" % (hop % 256) for hop in range(500)),
    ],
    ids=["address", "proxy", "binary", "bracket", "marks", "empty", "8 KB", "500 hops"],
)
def test_what_a_client_writes_itself_changes_nothing(forged: bytes, last_hop: str) -> None:
    """A client can put what it likes in front of the chain, or in lines of its own, and keeps its key."""
    honest = key_of(PROXY, last_hop, trusted=PROXIES)
    assert key_of(PROXY, forged + b"," + last_hop.encode(), trusted=PROXIES) == honest
    assert key_of(PROXY, forged, last_hop, trusted=PROXIES) == honest


def test_a_chain_is_not_followed_for_ever() -> None:
    """Of 500 trusted hops only the nearest are followed: the key is a proxy's then, not the far end's."""
    assert key_of(PROXY, "203.0.113.9" + ", 10.0.0.2" * 500, trusted=PROXIES) == "10.0.0.2"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (128, "2001:db8:1:2:3:4:5:6/128"),
        (64, "2001:db8:1:2::/64"),
        (56, "2001:db8:1::/56"),
        (48, "2001:db8:1::/48"),
        (1, "::/1"),
    ],
)
def test_ipv6_clients_are_grouped_by_prefix(prefix: int, expected: str) -> None:
    """All addresses of one network are one client, of whom it takes no effort to use another address."""
    assert key_of("2001:db8:1:2:3:4:5:6", prefix=prefix) == expected
    assert key_of(PROXY, "2001:db8:1:2:3:4:5:6", trusted=PROXIES, prefix=prefix) == expected


@pytest.mark.parametrize("prefix", [1, 56, 64, 96, 128])
@pytest.mark.parametrize("template", ["192.0.2.{}", "::ffff:192.0.2.{}"])
def test_ipv4_clients_are_never_grouped(template: str, prefix: int) -> None:
    """The prefix is for IPv6 alone: two IPv4 clients stay two, however their addresses are written."""
    assert key_of(template.format(1), prefix=prefix) != key_of(template.format(2), prefix=prefix)


@pytest.mark.parametrize("client", [None, ("", 0), (None, 0), []], ids=repr)
def test_without_an_address_there_is_no_key_and_one_warning(client: object, caplog: pytest.LogCaptureFixture) -> None:
    """Requests over a Unix socket share no bucket of all: they have no key, and the log says so once."""
    key = client_ip()
    assert [key.of(http(client=client)) for _ in range(3)] == [None, None, None]
    assert [(record.name, record.levelno) for record in caplog.records] == [("asgi_ratelimit", logging.WARNING)]


def test_a_scope_without_a_client_has_no_key() -> None:
    """ASGI lets servers leave the client out altogether."""
    scope = http()
    del scope["client"]
    assert client_ip(PROXIES).of(scope) is None


def test_every_key_of_its_own_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """One silent key function does not keep another from warning."""
    for key in (client_ip(), client_ip(PROXIES)):
        key.of(http(client=None))
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "wrong",
    ["*", "unix:", "10.0.0.1/8", "10.0.0.0/33", "fe80::/129", "example.org", ""],
)
def test_proxies_that_cannot_be_are_refused(wrong: str) -> None:
    """What is neither an address nor a network is told at start-up, quoted, with a right example."""
    with pytest.raises(ConfigurationError) as refused:
        client_ip(["10.0.0.0/8", wrong])
    assert repr(wrong)[1:-1] in str(refused.value)
    assert 'trusted_proxies=["10.0.0.0/8"' in str(refused.value)


@pytest.mark.parametrize("wrong", [0, 129, -1, 64.5, "64", None], ids=repr)
def test_prefixes_that_cannot_be_are_refused(wrong: int) -> None:
    """A prefix is a whole number from 1 to 128; anything else is told at start-up, quoted."""
    with pytest.raises(ConfigurationError, match=f"not {wrong!r}: .*ipv6_prefix=64"):
        client_ip(ipv6_prefix=wrong)


@pytest.mark.parametrize("scope", [http(), websocket()], ids=["http", "websocket"])
def test_keys_are_functions_of_a_connection(scope: dict[str, object]) -> None:
    """A key of ours can be called with any connection, as a user's own would be."""
    assert client_ip()(HTTPConnection(scope)) == "192.0.2.1"
    assert header("x-api-key")(HTTPConnection(scope)) is None


def test_keys_say_what_they_are() -> None:
    """Their repr shows the settings that they were built with."""
    assert repr(client_ip(["10.0.0.1"], ipv6_prefix=56)) == "client_ip(['10.0.0.1/32'], ipv6_prefix=56)"
    assert repr(header("X-Api-Key")) == "header('x-api-key')"


def test_a_header_is_hashed() -> None:
    """The key by a header is short, and does not show the value."""
    key = header_key(SECRET)
    assert key is not None
    assert len(key) == 32
    assert SECRET.decode() not in key


async def redis_keys(url: str) -> list[bytes]:
    async with Redis.from_url(url) as client:
        return [key async for key in client.scan_iter()]


@pytest.mark.anyio
async def test_the_value_of_a_header_never_reaches_the_store(redis_url: str) -> None:
    """What is in Redis afterwards does not contain the API key."""
    store = RedisStore(redis_url)
    app = RateLimitMiddleware(ok, "10/minute", key=header("x-api-key"), store=store)
    await ask(app, http(headers=[(b"x-api-key", SECRET)]))
    await store.aclose()
    (key,) = await redis_keys(redis_url)
    assert SECRET not in key


@pytest.mark.parametrize("name", ["x-api-key", "X-Api-Key", "X-API-KEY"])
def test_the_name_of_a_header_is_case_insensitive(name: str) -> None:
    """Header names have no case; their values do."""
    assert header_key(b"a", name=name) == header_key(b"a")
    assert header_key(b"A", name=name) != header_key(b"a")


def test_without_the_header_there_is_no_key() -> None:
    """A request that does not carry the header is not what the rule is for; one with an empty value is."""
    assert header_key() is None
    assert header_key(b"") is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"\xff", b"\xfe"),
        (b"\xff", "ÿ".encode()),
        (b"\xed\xa0\x80", b"\xed\xa0\x81"),
        (b"a\x00", b"a"),
        (b"", b" "),
        (b"a" * 8191 + b"b", b"a" * 8191 + b"c"),
    ],
    ids=["no text", "latin-1 or UTF-8", "surrogates", "NUL", "blank", "8 KB"],
)
def test_headers_are_bytes(one: bytes, other: bytes) -> None:
    """Any bytes are a value, of any length, and different bytes are different keys."""
    assert header_key(one) != header_key(other)
    assert header_key(one) == header_key(one)


def test_invented_values_do_not_pile_up_in_memory() -> None:
    """Who sends another large value with each request does not fill the process with them."""
    key = header("x-api-key")
    tracemalloc.start()
    try:
        for number in range(2_000):
            key.of(http(headers=[(b"x-api-key", b"%08d" % number + bytes(8192))]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000


def test_every_line_of_a_header_counts() -> None:
    """Who repeats a header does not pass for who sent only one of its lines."""
    assert header_key(b"a", b"b") not in (header_key(b"a"), header_key(b"b"))


def test_a_header_without_a_name_is_refused() -> None:
    """An empty name is told at start-up, quoted."""
    with pytest.raises(ConfigurationError, match="not ''"):
        header("")
