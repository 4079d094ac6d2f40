"""Keys by a name: headers and cookies, which are hashed, users and ``request.state``."""

from __future__ import annotations

import logging
import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from starlette.authentication import SimpleUser, UnauthenticatedUser
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, RedisStore
from asgi_ratelimit.keys import cookie, header, path_param, state, user
from asgi_ratelimit.keys.base import ScopeKey
from tests.support.asgi import ask, http, ok

SECRET = b"sk-live-4711"


def header_key(*values: bytes, name: str = "x-api-key", **options: Any) -> str | None:
    """The key by x-api-key, in the spelling ``name``, of a request with these values of it."""
    headers = [(b"accept", b"*/*"), *((b"x-api-key", value) for value in values)]
    return header(name, **options).of(http(headers=headers))


def cookie_key(*values: bytes) -> str | None:
    """The key by the cookie ``session`` of a request with these values of the header."""
    return cookie("session").of(http(headers=[(b"cookie", value) for value in values]))


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
    others = {header_key(SECRET, secret=secret) for secret in ("hush!", b"hush\0", "asgi_ratelimit", "ü" * 100, None)}
    assert len(others) == 5


@pytest.mark.parametrize("wrong", ["", b"", 7, ["hush"]], ids=repr)
def test_a_secret_that_cannot_be_is_refused(wrong: Any) -> None:
    """An empty one, for instance, of a setting that is not set. It is not quoted."""
    with pytest.raises(ConfigurationError, match=r"secret=settings\.secret"):
        header("x-api-key", secret=wrong)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [(made, "") for made in (header, cookie, path_param, user, state)]
    + [(header, name) for name in (" ", "x api key", "Authorization:", "x-kéy", "x\n", None)]
    + [(cookie, name) for name in ("my session", "session=", "a;b", None)],
)
def test_a_name_that_cannot_be_is_refused(made: Any, wrong: Any) -> None:
    """It would be no key for everybody. The name is quoted, with a right one."""
    with pytest.raises(ConfigurationError, match=re.escape(f'not {wrong!r}: {made.__name__}("')):
        made(wrong)


@pytest.mark.parametrize("name", ["x-api-key", "X-API-KEY"])
def test_a_header_is_keyed_by_its_value(name: str) -> None:
    """Names have no case, values have; no header is no key, an empty one is; any bytes are a value, of any length."""
    values = [b"a", b"A", b"", b"\xff", b"\xfe", b"a" * 8000, b"a" * 8001]
    keys = [header_key(value, name=name) for value in values]
    assert len(set(keys)) == len(values)
    assert {len(key or "") for key in keys} == {32}
    assert header_key(name=name) is None


def test_blanks_around_a_value_are_not_part_of_it() -> None:
    """Some servers leave them there, so one value could be sent in many spellings (RFC 9110, section 5.5)."""
    assert {header_key(value) for value in (b"a b", b" a b", b"a b\t ", b"\ta b")} == {header_key(b"a b")}


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ([b"session=a"], "a"),
        ([b"session=a; session=a", b'session="a"'], "a"),
        ([b" session = a ;"], "a"),
        ([b"Session=a"], None),
        ([b"\xff\xfe"], None),
        ([], None),
    ],
)
def test_a_cookie_is_keyed_as_the_app_reads_it(values: list[bytes], seen: str | None) -> None:
    """The value that ``request.cookies`` shows counts, in every spelling."""
    scope = http(headers=[(b"cookie", value) for value in values])
    assert HTTPConnection(scope).cookies.get("session") == seen
    assert cookie_key(*values) == (cookie_key(b"session=a") if seen == "a" else None)


PIECES = ['session="', "session=", "other=1", "\\", "\\054", "a", '"', ";", " ", "=", '\\"']


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_cookie_is_read_as_the_app_reads_it(parts: list[str]) -> None:
    """Quoted or not, with escapes or without; none is a cookie that the app does not see."""
    scope = http(headers=[(b"cookie", "".join(parts).encode("latin-1"))])
    read = HTTPConnection(scope).cookies.get("session")
    key = cookie("session")
    assert key.of(scope) in (None, "unreadable", key.key_of(read or ""))
    assert "".join(parts).count("session=") != 1 or key.of(scope) == (None if read is None else key.key_of(read))


def user_key(current: object, *attribute: str) -> str | None:
    return user(*attribute).of(http(user=current))


class Account:
    """A user of a class of the app's own."""

    is_authenticated = True

    def __init__(self, number: object) -> None:
        self.id = number


def test_the_user_is_the_one_who_is_authenticated() -> None:
    """By identity, or by the attribute that is named; others have no key."""
    assert user_key(SimpleUser("alice")) == "alice"
    assert user_key(UnauthenticatedUser()) is None
    assert user_key(Account(7), "id") == "7"
    assert user_key(Account(UUID(int=7)), "id") == "00000000-0000-0000-0000-000000000007"
    assert user_key(Account(None), "id") is None


@pytest.mark.parametrize("current", [Account(7), type("Bare", (Account,), {"id": object()})(7)], ids=["none", "other"])
def test_a_user_without_the_attribute_is_an_error(current: object) -> None:
    """The error names the class and the remedy."""
    with pytest.raises(TypeError, match=r'user\("id"\)'):
        user_key(current)


@pytest.mark.parametrize("value", [1.5, True, object(), ["7"]], ids=["float", "bool", "object", "list"])
def test_what_has_no_lasting_text_is_no_key(value: object) -> None:
    """An object with another text in each process would get a new bucket for each request."""
    with pytest.raises(TypeError, match=r"str\(user\.id\)"):
        user_key(Account(value), "id")


def test_without_authentication_there_is_no_user_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A limit outside the authentication would have no effect: one warning is logged."""
    key = user()
    assert [key.of(http()) for _ in range(3)] == [None] * 3
    assert [(record.name, record.levelno) for record in caplog.records] == [("asgi_ratelimit", logging.WARNING)]
    assert "add it after the limit with add_middleware, or before it in middleware=[...]" in caplog.text


def test_state_is_a_value_of_outer_middleware() -> None:
    """Text, bytes, a number or a UUID; without a value there is no key."""
    key = state("tenant")
    values = ["acme", b"acme", 7, UUID(int=7), None]
    expected = ["acme", "acme", "7", "00000000-0000-0000-0000-000000000007", None]
    assert [key.of(http(state={"tenant": value})) for value in values] == expected
    assert key.of(http(state={"other": 1})) is None
    assert key.of(http()) is None


@pytest.mark.parametrize("key", [path_param("id"), path_param("id").bind("/{id:path}"), state("id"), user("id")])
def test_long_texts_are_short_keys(key: ScopeKey) -> None:
    """Long values do not fill the process's memory; different ones have different keys."""
    keys = []
    for text in ("x" * 30, "x" * 8191, "x" * 8192):
        known = {"path_params": {"id": text}, "state": {"id": text}, "user": Account(text)}
        keys.append(key.of(http(f"/{text}", **known)) or "")
    assert keys[0] == "x" * 30
    assert len({key for key in keys if len(key) < 200}) == 3
