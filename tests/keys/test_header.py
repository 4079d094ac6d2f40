"""Keys by the value of a header or cookie, which is hashed."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, RedisStore
from asgi_ratelimit.keys import cookie, header
from tests.support.asgi import ask, http, ok

SECRET = b"sk-live-4711"


def header_key(*values: bytes, name: str = "x-api-key", **options: Any) -> str | None:
    """The key by x-api-key, in the spelling ``name``, of a request with these values of it."""
    headers = [(b"accept", b"*/*"), *((b"x-api-key", value) for value in values)]
    return header(name, **options).of(http(headers=headers))


def cookie_key(*values: bytes) -> str | None:
    """The key by the cookie ``session`` of a request with these values of the header."""
    return cookie("session").of(http(headers=[(b"cookie", value) for value in values]))


@pytest.mark.parametrize("key", [header_key(SECRET), cookie_key(b"session=" + SECRET)], ids=["header", "cookie"])
def test_secrets_are_hashed(key: str | None) -> None:
    """The key by a header or cookie is short, and does not show the value."""
    assert key is not None
    assert len(key) == 32
    assert SECRET.decode() not in key


async def redis_keys(url: str) -> list[bytes]:
    async with Redis.from_url(url) as client:
        return [key async for key in client.scan_iter()]


@pytest.mark.anyio
@pytest.mark.parametrize("key", [header("x-api-key"), cookie("session")], ids=repr)
async def test_a_secret_never_reaches_the_store(key: Any, redis_url: str) -> None:
    """Afterwards Redis contains neither the API key nor the session."""
    store = RedisStore(redis_url)
    app = RateLimitMiddleware(ok, "10/minute", key=key, store=store)
    await ask(app, http(headers=[(b"x-api-key", SECRET), (b"cookie", b"session=" + SECRET)]))
    await store.aclose()
    stored = await redis_keys(redis_url)
    assert len([name for name in stored if b"default" in name]) == 1
    assert not any(SECRET in name for name in stored)


@pytest.mark.parametrize("value", ["sk-live-4711", " sk-live-4711\t", "naïve", "0"])
@pytest.mark.parametrize("secret", [None, "hush"])
def test_the_key_of_a_value_is_that_of_its_requests(value: str, secret: str | None) -> None:
    """So an operator who knows an API key finds its bucket, and can block it."""
    headers = [(b"x-api-key", value.encode("latin-1")), (b"cookie", b"session=" + value.encode("latin-1"))]
    scope = http(headers=headers)
    for key in (header("x-api-key", secret=secret), cookie("session", secret=secret)):
        read = value if isinstance(key, header) else HTTPConnection(scope).cookies["session"]
        assert key.key_of(read) == key.of(scope)


def test_a_hash_is_the_same_in_every_process() -> None:
    """A release with another hash would make all buckets full again."""
    assert header_key(SECRET) == "76416c0bd5fa5f1393d3afcc677ab30f"
    assert header_key(SECRET, secret="hush") == "0a5c820af80558f7f1d00f308679b354"


@pytest.mark.parametrize("secret", ["hush", b"hush", "ü" * 100, bytes(1000)], ids=["text", "bytes", "long", "longer"])
def test_with_a_secret_guesses_cannot_be_tested(secret: str | bytes) -> None:
    """Without the secret, nobody can compute the hash of a value."""
    assert header_key(SECRET, secret=secret) == header_key(SECRET, secret=secret)
    others = ["hush!", b"hush\0", "asgi_ratelimit", None]
    assert header_key(SECRET, secret=secret) not in [header_key(SECRET, secret=other) for other in others]


@pytest.mark.parametrize("wrong", ["", b"", 7, ["hush"]], ids=repr)
def test_a_secret_that_cannot_be_is_refused(wrong: Any) -> None:
    """An empty one, for instance, of a setting that is not set. It is not quoted."""
    with pytest.raises(ConfigurationError, match=r"secret=settings\.secret"):
        header("x-api-key", secret=wrong)


@pytest.mark.parametrize("name", ["", " ", "x api key", "Authorization:", "x-api-key ", "x-kéy", "x\n", None], ids=repr)
def test_a_name_that_no_header_can_have_is_refused(name: Any) -> None:
    """It would be no key for everybody. The name is quoted, with a right one."""
    with pytest.raises(ConfigurationError, match=re.escape(f'not {name!r}: header("x-api-key")')):
        header(name)


@pytest.mark.parametrize("name", ["", " ", "my session", "session=", "a;b", None], ids=repr)
def test_a_name_that_no_cookie_can_have_is_refused(name: Any) -> None:
    """In the same way."""
    with pytest.raises(ConfigurationError, match=re.escape(f'not {name!r}: cookie("session")')):
        cookie(name)


@pytest.mark.parametrize("name", ["user[id]", "__Host-session", "a:b"])
def test_a_cookie_may_have_an_unusual_name(name: str) -> None:
    """Browsers send more than the names of RFC 6265."""
    assert cookie(name).of(http(headers=[(b"cookie", f"{name}=a".encode())])) is not None


@pytest.mark.parametrize("name", ["x-api-key", "X-Api-Key", "X-API-KEY"])
def test_the_name_of_a_header_is_case_insensitive(name: str) -> None:
    """Header names have no case; their values do."""
    assert header_key(b"a", name=name) == header_key(b"a")
    assert header_key(b"A", name=name) != header_key(b"a")


def test_without_the_header_there_is_no_key() -> None:
    """The rule does not apply to a request without the header; it does to one with an empty value."""
    assert header_key() is None
    assert header_key(b"") is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"\xff", b"\xfe"),
        (b"\xff", "ÿ".encode()),
        (b"\xed\xa0\x80", b"\xed\xa0\x81"),
        (b"a\x00", b"a"),
        (b"a" * 8191 + b"b", b"a" * 8191 + b"c"),
    ],
    ids=["no text", "latin-1 or UTF-8", "surrogates", "NUL", "8 KB"],
)
def test_headers_are_bytes(one: bytes, other: bytes) -> None:
    """Any bytes are a value, of any length, and different bytes are different keys."""
    assert header_key(one) != header_key(other)
    assert header_key(one) == header_key(one)


def test_blanks_around_a_value_are_not_part_of_it() -> None:
    """Some servers leave them there, so one value could be sent in many spellings (RFC 9110, section 5.5)."""
    assert {header_key(value) for value in (b"a b", b" a b", b"a b\t ", b"\ta b")} == {header_key(b"a b")}


def test_invented_values_do_not_fill_the_memory() -> None:
    """A client that sends another large value with each request takes no memory of the process."""
    key = header("x-api-key")
    tracemalloc.start()
    try:
        for number in range(2_000):
            key.of(http(headers=[(b"x-api-key", b"%08d" % number + bytes(8192))]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000


def test_a_header_sent_twice_is_keyed_as_the_app_reads_it() -> None:
    """A client that adds a junk header to a good API key does not get a bucket for each junk value."""
    scope = http(headers=[(b"x-api-key", b"good"), (b"x-api-key", b"junk")])
    assert HTTPConnection(scope).headers["x-api-key"] == "good"
    assert header_key(b"good", b"junk") == header_key(b"good")


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ([b"session=a"], "a"),
        ([b"other=1; session=a"], "a"),
        ([b"session=junk; session=a"], "a"),
        ([b"session=junk", b"session=a"], "a"),
        ([b'session="a"'], "a"),
        ([b" session = a ;"], "a"),
        ([b"Session=a"], None),
        ([b"session"], None),
        ([b"\xff\xfe"], None),
        ([], None),
    ],
)
def test_a_cookie_is_keyed_as_the_app_reads_it(values: list[bytes], seen: str | None) -> None:
    """The value that ``request.cookies`` shows counts, in every spelling, also where several are sent."""
    scope = http(headers=[(b"cookie", value) for value in values])
    assert HTTPConnection(scope).cookies.get("session") == seen
    assert cookie_key(*values) == (cookie_key(b"session=a") if seen == "a" else None)


@pytest.mark.parametrize(("one", "other"), [(b"a", b"b"), (b"\xff", b"\xfe"), (b"", b"a"), (b"a" * 4000, b"a" * 4001)])
def test_different_cookies_are_different_keys(one: bytes, other: bytes) -> None:
    """Any bytes, of any length."""
    assert None not in (cookie_key(b"session=" + one), cookie_key(b"session=" + other))
    assert cookie_key(b"session=" + one) != cookie_key(b"session=" + other)


@given(
    st.lists(
        st.sampled_from(['session="', "session=", "other=1", "\\", "\\054", "a", '"', ";", " ", "=", '\\"']),
        max_size=12,
    )
)
def test_any_cookie_is_read_as_the_app_reads_it(parts: list[str]) -> None:
    """Quoted or not, with escapes or without; none is a cookie that the app does not see."""
    scope = http(headers=[(b"cookie", "".join(parts).encode("latin-1"))])
    read = HTTPConnection(scope).cookies.get("session")
    key = cookie("session")
    assert key.of(scope) == (None if read is None else key.key_of(read))
