"""URLs of clusters and of sentinels."""

from __future__ import annotations

import pytest

from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.stores import open_store
from asgi_ratelimit.stores.urls import shown


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://localhost:26379", "name the service"),
        ("redis+sentinel://localhost:26379,/limits", "a host is missing"),
        ("redis+sentinel://localhost:word/limits", "a port is not a number"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://localhost:7000/3", "only database 0"),
        ("redis+cluster://localhost:7000?no_such_option=1", "no_such_option"),
        ("redis+magic://localhost:7000", "is not the URL of a store"),
        (" redis://localhost:7000", "is not the URL of a store"),
        ("redis+sentinel://localhost:7000/limits/x", "the database is not a number"),
        ("redis://localhost:7000/limits", "the database is not a number"),
        ("redis://one:7000,two:7000/0", r"several hosts need redis\+cluster://"),
        ("redis://localhost/0#1", 'there is a "#"'),
        ("unix://run/redis.sock", "third slash"),
        ("redis://localhost?retry=3", "the option 'retry' needs an object"),
    ],
)
def test_an_invalid_url(url: str, message: str) -> None:
    """It is rejected when the store is built; the error quotes what is no secret of it, and shows a right one."""
    with pytest.raises(ConfigurationError, match=message) as error:
        open_store(url)
    assert shown(url) in str(error.value)
    assert "redis+" in str(error.value) or "redis://localhost:6379/0" in str(error.value)
