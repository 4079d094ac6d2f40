"""Buckets as text: readable, bounded, and never two alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.buckets import as_bytes, as_key, bucket, bucket_prefix
from asgi_ratelimit.keys.base import short_key
from tests.support.examples import up_to

CLIENT = "1.2.3.4"
TRICKY_TEXT = st.lists(st.sampled_from(["a", ":", "{", "}", "%", "%3A", "%7B", "%25", "%#", "\0"]), max_size=3).map(
    "".join
)
ANY_TEXT = st.text(st.characters(exclude_categories=())) | TRICKY_TEXT | st.binary().map(as_key)
BUCKETS = st.tuples(TRICKY_TEXT.filter(bool), TRICKY_TEXT.filter(bool), ANY_TEXT)
MANY = up_to(300)


def redis_key(name: str, quota: str, key: str) -> bytes:
    """The key of a bucket in Redis, under the prefix ``rl``."""
    return b"rl:" + bucket(bucket_prefix(name, quota), key).encode()


def respelled(text: str) -> st.SearchStrategy[str]:
    """A text that is easily mistaken for this one: some of its characters as they would be escaped."""
    spellings = [
        st.sampled_from([character, "".join(f"%{byte:02X}" for byte in as_bytes(character))]) for character in text
    ]
    return st.tuples(*spellings).map("".join)


@st.composite
def lookalikes(draw: st.DrawFn) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Two buckets that read alike once their parts are joined, or that are escaped differently."""
    one = draw(BUCKETS)
    if draw(st.booleans()):
        return one, (draw(respelled(one[0])), draw(respelled(one[1])), draw(respelled(one[2][:50])))
    words = draw(st.lists(TRICKY_TEXT.filter(bool), min_size=4, max_size=4))
    return (words[0], words[1] + ":" + words[2], words[3]), (words[0] + ":" + words[1], words[2], words[3])


@pytest.mark.parametrize(
    ("name", "quota", "key", "written"),
    [
        ("default", "per-minute", CLIENT, b"rl:default:per-minute:{1.2.3.4}"),
        ("api", "per-minute", "2001:db8::/64", b"rl:api:per-minute:{2001:db8::/64}"),
        ("a:b", "q{1}", "{x}", b"rl:a%3Ab:q%7B1%7D:{%7Bx%7D}"),
        ("api", "100%", "50%", b"rl:api:100%25:{50%25}"),
        ("api", "q", "a b\n", b"rl:api:q:{a%20b%0A}"),
        ("api", "q", "ä", b"rl:api:q:{%C3%A4}"),
        ("api", "q", "", b"rl:api:q:{%}"),
    ],
)
def test_a_key_names_limiter_quota_and_client(name: str, quota: str, key: str, written: bytes) -> None:
    """Parts are joined by colons; all that could be ambiguous is written as ``%XX``."""
    assert redis_key(name, quota, key) == written


@pytest.mark.parametrize(
    ("quota", "written"),
    [
        (TokenBucket(10, 60, name="q"), "api:q:{key}"),
        (FixedWindow(10, 60, name="q"), "api:q:f60:{key}"),
        (FixedWindow(20, 60.0, name="q"), "api:q:f60:{key}"),
        (FixedWindow(10, 0.25, name="q"), "api:q:f0.25:{key}"),
        (FixedWindow(10, 34_559_999.000001, name="q"), "api:q:f34559999.000001:{key}"),
        (RollingWindow(10, 60, name="q"), "api:q:r60/60:{key}"),
        (RollingWindow(10, 60, 10, name="q"), "api:q:r60/10:{key}"),
    ],
)
def test_a_charge_on_a_window_tells_its_kind(quota: Quota, written: str) -> None:
    """Quotas whose states mean different things have different buckets; limits and bursts are no part of them."""
    assert Charge(quota, "key", name="api").bucket == written


@pytest.mark.parametrize("key", ["k" * 129, "k" * 10_000, "ä" * 65, "\ud800" * 5_000], ids=len)
def test_a_long_key_is_hashed(key: str) -> None:
    """Above 128 bytes, 32 hexadecimal digits stand for it."""
    assert re.fullmatch(rb"rl:api:q:\{%#[0-9a-f]{32}\}", redis_key("api", "q", key))


@given(st.tuples(BUCKETS, BUCKETS) | lookalikes())
@MANY
def test_distinct_buckets_have_distinct_keys(buckets: tuple[tuple[str, str, str], tuple[str, str, str]]) -> None:
    """Whatever is in their parts."""
    one, other = buckets
    assume(one != other)
    assert redis_key(*one) != redis_key(*other)


@given(ANY_TEXT, ANY_TEXT)
def test_distinct_clients_have_distinct_keys(one: str, other: str) -> None:
    """In Redis and in memory."""
    assume(one != other)
    assert redis_key("api", "q", one) != redis_key("api", "q", other)
    assert short_key(one) != short_key(other)


def hash_tag(key: bytes) -> bytes:
    """What a cluster hashes: the part from the first opening to the next closing brace, if it is not empty."""
    found = re.search(rb"\{(.+?)\}", key, re.DOTALL)
    assert found, key
    return found[1]


@given(BUCKETS, BUCKETS)
def test_all_buckets_of_a_client_are_in_one_slot(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """The hash tag is never empty, and is the client's alone, whatever the limiter and the quota are called."""
    keys = [redis_key(name, quota, one[2]) for name, quota, _ in (one, other)]
    assert hash_tag(keys[0]) == hash_tag(keys[1])
    assert all(key.endswith(b":{" + hash_tag(key) + b"}") for key in keys)


@given(st.binary(), st.binary())
def test_bytes_that_are_not_utf8_stay_apart(one: bytes, other: bytes) -> None:
    """Keys of any bytes become keys of text without a collision."""
    assert (as_bytes(as_key(one)) == as_bytes(as_key(other))) == (one == other)
