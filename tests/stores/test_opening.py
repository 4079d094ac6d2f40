"""Stores from URLs and ``store`` arguments: wrong ones are refused, and no password is ever shown."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import redis
from redis.asyncio import Redis, Sentinel

from asgi_ratelimit import ConfigurationError, Limiter, RateLimitMiddleware, RedisStore, open_store
from asgi_ratelimit.stores.redis.clients import shown
from tests.support.asgi import ok
from tests.support.server import HOST

SECRET = "s3cr3t"

WRONG = [
    "redis://:s3cr3t@host:port/0",
    "redis://default:s3cr3t",
    "redis://:s3cr3t@[::1/0",
    "redis://:s3cr3t#x@host:6379/0",
    "redis://:s3cr3t@h1,h2:1/0",
    "redis://:s3cr3t@host/-1",
    "redis://:s3cr3t@host/0?protocol=9",
    "redis://host/0?password=s3cr3t&bogus=1",
    "rediss://:s3cr3t@host/0?ssl_cert_reqs=bogus",
    "redis+cluster://:s3cr3t@host:x,host2",
    "redis+cluster://:s3cr3t@host/3",
    "redis+sentinel://:s3cr3t@host:26379",
    "redis+sentinel://host:26379/limits?sentinel_password=s3cr3t&bogus=1",
    "redis+sentinel://host:26379/limits?sentinel_password=s3cr3t&sentinel_bogus=1",
    "redis+magic://:s3cr3t@host",
    "reddis://:s3cr3t@host:6379/0",
    ":s3cr3t@host:6379",
    "unix://run/redis.sock",
    "memory://:s3cr3t@host",
    "",
]


@pytest.mark.parametrize("make", [open_store, RedisStore, lambda url: Limiter("1/s", store=url)])
@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_without_its_password(url: str, make: Any) -> None:
    """Only ever by a ``ConfigurationError``, which has the password neither in its text nor in what it came from."""
    with pytest.raises(ConfigurationError, match=r"memory://.*redis://localhost:6379/0") as raised:
        make(url)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert SECRET not in repr(raised.value.__cause__) + repr(raised.value.__context__)
    assert shown(url) in str(raised.value)
    assert shown("redis//localhost") == repr("redis//localhost")  # it has no place for a password


@pytest.mark.parametrize(
    "wrong",
    [b"redis://:s3cr3t@host", {"password": SECRET}, redis.Redis(password=SECRET), 7, None],
    ids=["bytes", "dict", "a client without async", "number", "nothing"],
)
def test_what_is_no_url_is_refused_without_a_password(wrong: Any) -> None:
    """Its kind is quoted instead of itself."""
    for make in (open_store, RedisStore):
        with pytest.raises(ConfigurationError) as raised:
            make(wrong)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert type(wrong).__name__ in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cr3t@localhost:6379/0",
        "unix://:s3cr3t@/tmp/redis.sock?db=2",
        "redis+cluster://:s3cr3t@host1:7000,host2:7001",
        "redis+sentinel://:s3cr3t@host1,host2:26379/limits/2?sentinel_password=s3cr3t",
    ],
)
def test_a_store_never_shows_its_password(url: str) -> None:
    """Nor does what holds it."""
    store = open_store(url)
    for thing in (store, vars(store), Limiter("1/s", store=store), RateLimitMiddleware(ok, "1/s", store=store)):
        assert SECRET not in repr(thing)


@pytest.mark.parametrize(
    "url",
    ["redis://:s3/cr3t@localhost", "redis://nobody7:12/cr3t@localhost", "redis+sentinel://:s3/cr3t@localhost/limits"],
)
def test_a_password_that_has_to_be_quoted_is_explained(url: str) -> None:
    """The error says how, and shows no part of it."""
    with pytest.raises(ConfigurationError, match=r"urllib\.parse\.quote\(password, safe=\"\"\)") as raised:
        open_store(url)
    text = "".join(traceback.format_exception(raised.value))
    assert not any(part in text for part in ("s3/", "s3?", "cr3t", "nobody7", "ss="))


@pytest.mark.parametrize("end", ["", "+cluster", "+sentinel"])
def test_an_unknown_option_is_named(end: str) -> None:
    """Beside a URL without it."""
    url = f"redis{end}://:s3cr3t@localhost{'/limits' if end == '+sentinel' else ''}?timout=3"
    with pytest.raises(ConfigurationError, match="unknown option 'timout'") as raised:
        open_store(url)
    assert SECRET not in str(raised.value)


def test_options_of_a_url_go_to_the_store() -> None:
    """Each kind takes its own; nothing is connected yet."""
    assert "max_keys=5" in repr(open_store("memory://", max_keys=5))
    assert "prefix='p'" in repr(open_store("redis:///3", timeout=1.5, prefix="p"))


@pytest.mark.parametrize(
    ("source", "at"),
    [
        ("redis://joe:s3cr3t@{host}:1/3", "'redis://***@{host}:1/3'"),
        ("unix:///no/such.sock", "'unix:///no/such.sock'"),
        ("redis+sentinel://:s3cr3t@{host}:1,{host}:2/limits", "'redis+sentinel://***@{host}:1,{host}:2/limits'"),
        ("redis+cluster://:s3cr3t@{host}:1,{host}:2", "'redis+cluster://***@{host}:1,{host}:2'"),
        (Redis(host=HOST, port=1, password="s3cr3t"), "{host}:1"),
        (Redis(unix_socket_path="/no/such.sock"), "/no/such.sock"),
        (Sentinel([(HOST, 1)]).master_for("limits"), "{host}:1"),
    ],
    ids=["url", "socket", "sentinels", "cluster", "client", "client of a socket", "client of sentinels"],
)
@pytest.mark.anyio
async def test_the_log_names_the_address(source: Any, at: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of a store that is out, without its password, whether a URL or a client was given."""
    given = source.replace("{host}", HOST) if isinstance(source, str) else source
    async with Limiter("5/minute", store=RedisStore(given, on_error="deny")) as limiter:
        await limiter.rate_limit("key")
    assert f"the rate limit store at {at.replace('{host}', HOST)} is out, so on_error='deny' decides" in caplog.text
    assert SECRET not in caplog.text
