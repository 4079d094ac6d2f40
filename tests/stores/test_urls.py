"""URLs of stores: wrong ones are refused, and no password is ever shown."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import redis

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, RateLimitMiddleware, RedisStore, open_store
from asgi_ratelimit.stores.urls import shown
from tests.support.asgi import ok

SECRET = "s3cr3t"

WRONG = [
    "redis://:s3cr3t@host:port/0",
    "redis://:s3cr3t@host:99999/0",
    "redis://:s3cr3t@host:0/0",
    "redis://default:s3cr3t",
    "redis://user:s3cr3t@",
    "redis://:s3cr3t@[::1/0",
    "redis://:s3cr3t@host\u2100.com/",
    "redis://:s3cr3t/x@host:6379",
    "redis://:s3cr3t#x@host:6379/0",
    "redis://:s3cr3t?x@host:6379",
    "redis://:x@s3cr3t@host:port",
    "redis://:s3cr3t@h1,h2:1/0",
    "redis://u:s3cr3t@host:6379/abc",
    "redis://:s3cr3t@host/-1",
    "redis://:s3cr3t@host/0?no_such=1",
    "redis://:s3cr3t@host/0?db=x",
    "redis://:s3cr3t@host/0?protocol=9",
    "redis://:s3cr3t@host/0?protocol=3&maint_notifications_config=1",
    "redis://:s3cr3t@host/0?credential_provider=x",
    "redis://:s3cr3t@host/0?parser_class=1",
    "redis://host/0?password=s3cr3t&bogus=1",
    "redis://host/0?username=s3cr3t&db=x",
    "redis://host/0?s3cr3t",
    "rediss://:s3cr3t@host/0?ssl_cert_reqs=bogus",
    "rediss://:x@host/0?ssl_password=s3cr3t&bogus=1",
    "redis+cluster://:s3cr3t@host:x,host2",
    "redis+cluster://:s3cr3t@host/3",
    "redis+cluster://:s3cr3t@",
    "redis+sentinel://:s3cr3t@host:26379",
    "redis+sentinel://:s3cr3t@host:xx/limits",
    "redis+sentinel://host:26379/limits?sentinel_password=s3cr3t&bogus=1",
    "rediss+sentinel://:s3cr3t@h:26379/limits?ssl_cert_reqs=bogus",
    "redis+magic://:s3cr3t@host",
    "reddis://:s3cr3t@host:6379/0",
    "redis//:s3cr3t@host",
    "redis:/:s3cr3t@host:6379",
    ":s3cr3t@host:6379",
    " redis://:s3cr3t@host",
    "http://:s3cr3t@host",
    "REDIS://:s3cr3t@host:p",
    "unix://:s3cr3t@",
    "unix://:s3cr3t@/tmp/x?db=z",
    "memory://:s3cr3t@host",
]


@pytest.mark.parametrize("make", [open_store, RedisStore, lambda url: Limiter("1/s", store=url)])
@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_without_its_password(url: str, make: Any) -> None:
    """Only ever by a ``ConfigurationError``, which has the password neither in its text nor in what it came from."""
    with pytest.raises(ConfigurationError) as raised:
        make(url)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert SECRET not in repr(raised.value.__cause__) + repr(raised.value.__context__)
    assert shown(url) in str(raised.value)
    assert "://" in str(raised.value).replace(url, "")


@pytest.mark.parametrize(
    "wrong",
    [b"redis://:s3cr3t@host", {"password": SECRET}, redis.Redis(password=SECRET), ["redis://:s3cr3t@host"], 7],
    ids=["bytes", "dict", "a client without async", "list", "number"],
)
def test_what_is_no_url_is_refused_without_a_password(wrong: Any) -> None:
    """Its kind is quoted instead of itself."""
    for make in (open_store, RedisStore):
        with pytest.raises(ConfigurationError) as raised:
            make(wrong)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert type(wrong).__name__ in str(raised.value) or isinstance(wrong, bytes)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cr3t@localhost:6379/0",
        "rediss://:s3cr3t@localhost?ssl_cert_reqs=none",
        "unix://:s3cr3t@/tmp/redis.sock?db=2",
        "redis+cluster://:s3cr3t@host1:7000,host2:7001",
        "redis+sentinel://:s3cr3t@host1,host2:26379/limits/2?sentinel_password=s3cr3t",
        "redis://localhost?password=s3cr3t&encoding=no-such-encoding",
    ],
)
def test_a_store_never_shows_its_password(url: str) -> None:
    """Nor does what holds it."""
    store = open_store(url)
    for thing in (store, vars(store), Limiter("1/s", store=store), RateLimitMiddleware(ok, "1/s", store=store)):
        assert SECRET not in repr(thing)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6379/0", "'redis://localhost:6379/0'"),
        ("redis://a:b@[::1]:6379/0?db=1&password=x", "'redis://***@[::1]:6379/0?***'"),
        ("redis://a:b@c:d@host,other:7/x", "'redis://***@host,other:7/x'"),
        ("redis://default:word", "'redis://***'"),
        ("localhost:6379", "'localhost:6379'"),
        ("host:word", "'***'"),
        ("rediss:/localhost", "'***'"),
        ("secret:/word", "'***'"),
        (" redis://a:b@host", "' redis://***@host'"),
        ("", "''"),
        (b"redis://a:b@host", "b'redis://***@host'"),
        (None, "a builtins.NoneType"),
    ],
)
def test_how_a_url_is_shown(url: Any, expected: str) -> None:
    """All but what may be a part of the credentials."""
    assert shown(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3/cr3t@localhost",
        "redis://:s3?cr3t@localhost",
        "redis://nobody7:12/cr3t@localhost",
        "redis://nobody7:12?cr3t@localhost",
        "redis://nobody7:12?ss=cr3t@localhost",
        "redis+cluster://:s3/cr3t@localhost",
        "redis+sentinel://:s3/cr3t@localhost/limits",
        "unix://:s3/cr3t@/tmp/redis.sock",
    ],
)
def test_a_password_that_has_to_be_quoted_is_explained(url: str) -> None:
    """The error says how, and shows no part of it."""
    with pytest.raises(ConfigurationError, match=r"urllib\.parse\.quote\(password, safe=\"\"\)") as raised:
        open_store(url)
    text = "".join(traceback.format_exception(raised.value))
    assert not any(part in text for part in ("s3/", "s3?", "cr3t", "nobody7", "ss="))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis:/localhost", "'***' is not the URL of a store, two slashes follow its colon, redis://: "),
        (
            "rediss+cluster:localhost",
            "'***' is not the URL of a store, two slashes follow its colon, red",
        ),
        (" redis://localhost", "' redis://localhost' is not the URL of a store, it begins with a space"),
        ("redis://localhost:63790000", "'redis://***' is not a URL of a Redis: "),
        ("unix://run/redis.sock", '"unix:///run/redis.sock"'),
    ],
    ids=["slashes", "slash", "space", "port", "socket"],
)
def test_what_is_wrong_without_a_password_is_said_without_one(url: str, says: str) -> None:
    """How a password is written is no help there."""
    with pytest.raises(ConfigurationError) as raised:
        open_store(url)
    assert says in str(raised.value)
    assert "quote(" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t@localhost?timout=3",
        "redis+cluster://:s3cr3t@host1,host2?timout=3",
        "redis+sentinel://:s3cr3t@host:26379/limits?timout=3",
    ],
)
def test_an_unknown_option_is_named(url: str) -> None:
    """Beside those that there are, and the way to set a time-out."""
    with pytest.raises(ConfigurationError, match=r"option 'timout' is not known; .* timeout=0\.25") as raised:
        open_store(url)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("redis://localhost:6379/0", RedisStore),
        ("rediss://user:password@localhost:6380", RedisStore),
        ("unix:///run/redis.sock", RedisStore),
    ],
)
def test_a_url_names_a_store(url: str, kind: type) -> None:
    """The scheme names the kind; nothing is connected yet."""
    assert type(open_store(url)) is kind


@pytest.mark.parametrize("url", ["", "redis", "memory", "redis:localhost", "http://localhost", "memcached://h", "://"])
def test_a_url_that_names_no_store(url: str) -> None:
    """The error quotes it, without what may be a password, and shows valid ones."""
    with pytest.raises(ConfigurationError, match=r"memory://.*redis://") as raised:
        open_store(url)
    assert shown(url) in str(raised.value)


def test_options_of_a_url_go_to_the_store() -> None:
    """Each kind takes its own."""
    assert "max_keys=5" in repr(open_store("memory://", max_keys=5))
    assert "timeout=1.5" in repr(open_store("redis://localhost", timeout=1.5, prefix="p"))
