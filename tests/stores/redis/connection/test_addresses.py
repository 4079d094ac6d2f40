"""URLs of clusters and of sentinels."""

from __future__ import annotations

import pytest

from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.stores import open_store


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://localhost:26379", "name the service"),
        ("redis+sentinel://localhost:26379,/limits", "a host is missing"),
        ("redis+sentinel://localhost:word/limits", "word"),
        ("redis+cluster://", "a host is missing"),
        ("redis+cluster://localhost:7000/3", "only database 0"),
        ("redis+cluster://localhost:7000?no_such_option=1", "no_such_option"),
        ("redis+magic://localhost:7000", "is not the URL of a store"),
    ],
)
def test_an_invalid_url(url: str, message: str) -> None:
    """It is rejected when the store is built; the error quotes it and shows a right one."""
    with pytest.raises(ConfigurationError, match=message) as error:
        open_store(url)
    assert repr(url) in str(error.value)
    assert "redis+" in str(error.value)
