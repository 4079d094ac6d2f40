"""URLs of clusters and of sentinels, and the addresses that the log names."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis, Sentinel

from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.stores import RedisStore, open_store
from asgi_ratelimit.stores.urls import shown
from tests.support.server import HOST


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://localhost:26379", "mymaster"),
        ("redis+sentinel://localhost:26379,/limits", "mymaster"),
        ("redis+sentinel://localhost:word/limits", "mymaster"),
        ("redis+cluster://", "host1:6379"),
        ("redis+cluster://localhost:7000/3", "host1:6379"),
        ("redis+cluster://localhost:7000?no_such_option=1", "no_such_option"),
        ("redis+magic://localhost:7000", "is not the URL of a store"),
        (" redis://localhost:7000", "is not the URL of a store"),
        ("redis+sentinel://localhost:7000/limits/x", "is not a URL of a Redis"),
        ("redis://localhost:7000/limits", "is not a URL of a Redis"),
        ("redis://one:7000,two:7000/0", "is not a URL of a Redis"),
        ("redis://localhost/0#1", "is not a URL of a Redis"),
        ("unix://run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_an_invalid_url(url: str, message: str) -> None:
    """It is rejected when the store is built; the error quotes what is no secret of it, and shows a right one."""
    with pytest.raises(ConfigurationError, match=message) as error:
        open_store(url)
    assert shown(url) in str(error.value)
    assert "redis+" in str(error.value) or "redis://localhost:6379/0" in str(error.value)


@pytest.mark.parametrize(
    ("source", "at"),
    [
        ("redis://joe:s3cr3t@{host}:1/3", "'redis://***@{host}:1/3'"),
        ("rediss://{host}:1", "'rediss://{host}:1'"),
        ("unix:///no/such.sock", "'unix:///no/such.sock'"),
        ("redis+sentinel://:s3cr3t@{host}:1,{host}:2/limits", "'redis+sentinel://***@{host}:1,{host}:2/limits'"),
        ("redis+cluster://:s3cr3t@{host}:1,{host}:2", "'redis+cluster://***@{host}:1,{host}:2'"),
        (Redis(host=HOST, port=1, password="s3cr3t"), "'redis://{host}:1/0'"),
        (Redis(host=HOST, port=1, ssl=True, db=2), "'rediss://{host}:1/2'"),
        (Redis(host="::1", port=1), "'redis://[::1]:1/0'"),
        (Redis(unix_socket_path="/no/such.sock"), "'unix:///no/such.sock'"),
        (Sentinel([(HOST, 1)]).master_for("limits"), "'redis+sentinel://{host}:1/limits'"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
@pytest.mark.anyio
async def test_the_log_names_the_address(source: Any, at: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of a store that is out, without its password, whether a URL or a client was given."""
    given = source.replace("{host}", HOST) if isinstance(source, str) else source
    async with Limiter("5/minute", store=RedisStore(given, on_error="deny")) as limiter:
        await limiter.rate_limit("key")
    assert f"the rate limit store at {at.replace('{host}', HOST)} is out; every request is now refused (" in caplog.text
    assert "s3cr3t" not in caplog.text
