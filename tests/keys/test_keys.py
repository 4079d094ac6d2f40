"""Keys: whose bucket a request is charged to, by header, cookie, path, user and state."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis
from starlette.authentication import SimpleUser, UnauthenticatedUser
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.keys import cookie, header, path_param, state, user
from asgi_ratelimit.keys.base import ScopeKey
from tests.support.asgi import ask, http, limited, ok, websocket

SECRET = b"sk-live-4711"


def header_key(*values: bytes, name: str = "x-api-key", **options: Any) -> str | None:
    """The key by x-api-key, or how ``name`` spells it, of a request with these values of it."""
    headers = [(b"accept", b"*/*"), *((b"x-api-key", value) for value in values)]
    return header(name, **options).of(http(headers=headers))


def cookie_key(*lines: bytes) -> str | None:
    """The key by the cookie ``session`` of a request with these lines of cookies."""
    return cookie("session").of(http(headers=[(b"cookie", line) for line in lines]))


@pytest.mark.parametrize("key", [header("x-api-key"), cookie("session"), state("tenant"), user()], ids=repr)
@pytest.mark.parametrize("scope", [http(), websocket()], ids=["http", "websocket"])
def test_keys_are_functions_of_a_connection(key: Callable[[HTTPConnection], str | None], scope: Any) -> None:
    """A key of ours can be called with any connection, as a user's own would be."""
    assert key(HTTPConnection(scope)) is None


def test_keys_say_what_they_are() -> None:
    """Their repr shows what they were built with, but for a secret."""
    keys = [header("X-Api-Key", secret="hush"), cookie("session"), path_param("id"), user(), state("tenant")]
    shown = ["header('x-api-key')", "cookie('session')", "path_param('id')", "user('identity')", "state('tenant')"]
    assert [repr(key) for key in keys] == shown
    assert repr(path_param("id").bound("/{id}")) == "path_param('id')"


@pytest.mark.parametrize("made", [header, cookie, path_param, user, state])
@pytest.mark.parametrize("wrong", ["", None, b"id", 7], ids=repr)
def test_names_that_cannot_be_are_refused(made: Callable[[Any], object], wrong: object) -> None:
    """A wrong name is told at start-up, quoted, with a right example."""
    with pytest.raises(ConfigurationError, match=rf'not .*: {made.__name__}\("') as refused:
        made(wrong)
    assert repr(wrong) in str(refused.value)


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
    """What is in Redis afterwards does not contain the API key, nor the session."""
    store = RedisStore(redis_url)
    app = RateLimitMiddleware(ok, "10/minute", key=key, store=store)
    await ask(app, http(headers=[(b"x-api-key", SECRET), (b"cookie", b"session=" + SECRET)]))
    await store.aclose()
    (stored,) = await redis_keys(redis_url)
    assert SECRET not in stored


def test_a_hash_is_the_same_in_every_process() -> None:
    """It is this one, today and in the next release: who changes it opens all buckets anew."""
    assert header_key(SECRET) == "76416c0bd5fa5f1393d3afcc677ab30f"
    assert header_key(SECRET, secret="hush") == "0a5c820af80558f7f1d00f308679b354"


@pytest.mark.parametrize("secret", ["hush", b"hush", "ü" * 100, bytes(1000)], ids=["text", "bytes", "long", "longer"])
def test_with_a_secret_a_value_cannot_be_tried_out(secret: str | bytes) -> None:
    """Who knows the package, and not the secret, cannot tell a value by its hash."""
    assert header_key(SECRET, secret=secret) == header_key(SECRET, secret=secret)
    others = ["hush!", b"hush\0", "asgi_ratelimit", None]
    assert header_key(SECRET, secret=secret) not in [header_key(SECRET, secret=other) for other in others]


@pytest.mark.parametrize("wrong", ["", b"", 7, ["hush"]], ids=repr)
def test_a_secret_that_cannot_be_is_refused(wrong: Any) -> None:
    """An empty one, for instance, which comes of a setting that is not set; and it is not quoted."""
    with pytest.raises(ConfigurationError, match=r"secret=settings\.secret"):
        header("x-api-key", secret=wrong)


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
        (b"a" * 8191 + b"b", b"a" * 8191 + b"c"),
    ],
    ids=["no text", "latin-1 or UTF-8", "surrogates", "NUL", "8 KB"],
)
def test_headers_are_bytes(one: bytes, other: bytes) -> None:
    """Any bytes are a value, of any length, and different bytes are different keys."""
    assert header_key(one) != header_key(other)
    assert header_key(one) == header_key(one)


def test_blanks_around_a_value_are_not_part_of_it() -> None:
    """Some servers leave them there, so that one value could be sent in any number of ways (RFC 9110, section 5.5)."""
    assert {header_key(value) for value in (b"a b", b" a b", b"a b\t ", b"\ta b")} == {header_key(b"a b")}


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


def test_a_header_sent_twice_is_keyed_as_the_app_reads_it() -> None:
    """Who adds a line of junk to a good API key does not get a bucket for each junk."""
    scope = http(headers=[(b"x-api-key", b"good"), (b"x-api-key", b"junk")])
    assert HTTPConnection(scope).headers["x-api-key"] == "good"
    assert header_key(b"good", b"junk") == header_key(b"good")


@pytest.mark.parametrize(
    ("lines", "seen"),
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
def test_a_cookie_is_keyed_as_the_app_reads_it(lines: list[bytes], seen: str | None) -> None:
    """However it is written, and how often: what ``request.cookies`` shows is what counts."""
    scope = http(headers=[(b"cookie", line) for line in lines])
    assert HTTPConnection(scope).cookies.get("session") == seen
    assert cookie_key(*lines) == (cookie_key(b"session=a") if seen == "a" else None)


@pytest.mark.parametrize(("one", "other"), [(b"a", b"b"), (b"\xff", b"\xfe"), (b"", b"a"), (b"a" * 4000, b"a" * 4001)])
def test_different_cookies_are_different_keys(one: bytes, other: bytes) -> None:
    """Any bytes, of any length."""
    assert None not in (cookie_key(b"session=" + one), cookie_key(b"session=" + other))
    assert cookie_key(b"session=" + one) != cookie_key(b"session=" + other)


ITEMS = Rule("/items/{id:int}", "1/minute", key=path_param("id"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status"),
    [("/items/7", 429), ("/items/007", 429), ("/items/8", 200), ("/items/" + "0" * 8000 + "7", 200), ("/items/x", 200)],
    ids=["the same", "zeros", "another", "no number", "not the rule's"],
)
async def test_a_rule_may_be_keyed_by_a_parameter_of_its_path(path: str, status: int) -> None:
    """Before anything is routed, and as the convertor reads it: 7 and 007 are one item."""
    app = limited(ok, None, rules=[ITEMS])
    await ask(app, http("/items/7"))
    assert (await ask(app, http(path))).status == status


@pytest.mark.anyio
async def test_parameters_that_are_no_number_share_one_bucket() -> None:
    """A number of 8,000 digits is none that Python reads: all of them are one item, not as many as one likes."""
    app = limited(ok, None, rules=[ITEMS])
    assert [(await ask(app, http("/items/" + digit * 8000))).status for digit in "123"] == [200, 429, 429]


@pytest.mark.parametrize(
    ("path", "spellings"),
    [
        ("/{id:int}", ["7", "07", "000007"]),
        ("/{id:float}", ["1.5", "1.50", "01.5"]),
        ("/{id:uuid}", ["0123456789abcdef0123456789abcdef", "01234567-89AB-cdef-0123-456789abcdef"]),
    ],
)
def test_a_parameter_has_one_key_in_all_its_spellings(path: str, spellings: list[str]) -> None:
    """What the app takes for the same thing is one bucket, and another thing is another."""
    key = path_param("id").bound(path)
    assert len({key.of(http(f"/{text}")) for text in spellings}) == 1
    assert key.of(http(f"/{spellings[0][:-1]}9")) != key.of(http(f"/{spellings[0]}"))


@pytest.mark.anyio
async def test_a_parameter_of_the_path_below_the_root() -> None:
    """Under a root path, the rule's path is what follows it, as for a route."""
    app = limited(ok, None, rules=[ITEMS])
    under = [http(f"{root}/items/7", root_path=root) for root in ("", "/api")]
    assert [(await ask(app, scope)).status for scope in under] == [200, 429]


@pytest.mark.parametrize("path", ["/items", "/items/{item}", "/{rest:path}"])
def test_a_rule_without_the_parameter_is_refused(path: str) -> None:
    """It could never work: that is told at start-up, with the name, the path, and a right example."""
    with pytest.raises(ConfigurationError, match=r"Rule\(\"/items/\{id\}\"") as refused:
        limited(ok, None, rules=[Rule(path, "1/minute", key=path_param("id"))])
    assert "'id'" in str(refused.value)
    assert path in str(refused.value)


async def endpoint(request: Request) -> Response:
    return Response()


def routed(**options: Any) -> list[Middleware]:
    return [Middleware(limited, quota="1/minute", key=path_param("id"), **options)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "route",
    [
        Route("/items/{id:int}/", endpoint, middleware=routed()),
        Mount("/items/{id:int}", routes=[Route("/", endpoint)], middleware=routed()),
    ],
    ids=["route", "mount"],
)
async def test_in_the_middleware_of_a_route_it_is_the_route_s(route: Route | Mount) -> None:
    """There the request has been routed, and the route knows its parameters."""
    app = Router([route])
    assert [(await ask(app, http(f"/items/{item}/"))).status for item in ("7", "007", "8")] == [200, 429, 200]


@pytest.mark.parametrize(
    "made",
    [path_param("id"), path_param("id").bound("/{id:path}"), state("id"), user("id")],
    ids=["route", "rule", "state", "user"],
)
def test_long_texts_are_short_keys(made: ScopeKey) -> None:
    """Who comes with ever other long values does not fill the process with them; different ones stay different."""

    def key_of(text: str) -> str:
        key = made.of(http(f"/{text}", path_params={"id": text}, state={"id": text}, user=Account(text)))
        assert key is not None
        return key

    assert len(key_of("x" * 8192)) < 200
    assert key_of("x" * 8192) != key_of("x" * 8191)
    assert key_of("x" * 30) == "x" * 30


def test_before_routing_it_says_what_to_do() -> None:
    """In the middleware of the whole app there is no parameter to be had, for any request: never in silence."""
    with pytest.raises(ConfigurationError, match=r'Rule\("/items/\{id\}", \.\.\., key=path_param\(\'id\'\)\)'):
        path_param("id").of(http("/items/7"))


def test_a_route_without_the_parameter_has_no_key() -> None:
    """One key function may serve several routes."""
    assert path_param("id").of(http(path_params={"name": "x"})) is None
    assert path_param("id").of(http(path_params={"id": 7})) == "7"


def user_key(found: object, *attribute: str) -> str | None:
    return user(*attribute).of(http(user=found))


class Account:
    """A user of somebody's own, not of Starlette's kind."""

    is_authenticated = True

    def __init__(self, number: object) -> None:
        self.id = number


def test_the_user_is_the_one_who_is_authenticated() -> None:
    """By identity, or by the attribute that is named; nobody else has a key."""
    assert user_key(SimpleUser("alice")) == "alice"
    assert user_key(UnauthenticatedUser()) is None
    assert user_key(Account(7), "id") == "7"
    assert user_key(Account(UUID(int=7)), "id") == "00000000-0000-0000-0000-000000000007"
    assert user_key(Account(None), "id") is None


@pytest.mark.parametrize("found", [Account(7), type("Bare", (Account,), {"id": object()})(7)], ids=["none", "other"])
def test_a_user_without_the_attribute_is_an_error(found: object) -> None:
    """Which names the class, and what to write."""
    with pytest.raises(TypeError, match=r'user\("id"\)'):
        user_key(found)


@pytest.mark.parametrize("value", [1.5, True, object(), ["7"]], ids=["float", "bool", "object", "list"])
def test_what_has_no_lasting_text_is_no_key(value: object) -> None:
    """An object whose text is another in each process would open a bucket for each request."""
    with pytest.raises(TypeError, match=r"str\(user\.id\)"):
        user_key(Account(value), "id")


def test_without_authentication_there_is_no_user_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A limit outside of the authentication would do nothing, in silence: the log says so once."""
    key = user()
    assert [key.of(http()) for _ in range(3)] == [None] * 3
    assert [(record.name, record.levelno) for record in caplog.records] == [("asgi_ratelimit", logging.WARNING)]


def test_state_is_what_middleware_has_left_there() -> None:
    """Text, bytes, a number or a UUID; nothing there, no key."""
    key = state("tenant")
    values = ["acme", b"acme", 7, UUID(int=7), None]
    expected = ["acme", "acme", "7", "00000000-0000-0000-0000-000000000007", None]
    assert [key.of(http(state={"tenant": value})) for value in values] == expected
    assert key.of(http(state={"other": 1})) is None
    assert key.of(http()) is None


def test_state_is_that_of_the_request() -> None:
    """What ``request.state.tenant = ...`` has set."""
    request = Request(http())
    request.state.tenant = "acme"
    assert state("tenant")(request) == "acme"
