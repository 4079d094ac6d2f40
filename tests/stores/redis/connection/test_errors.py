"""Errors of redis-py, and the errors of this package that they become."""

from __future__ import annotations

import pytest
from redis import exceptions

from asgi_ratelimit import StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.stores.redis.clients import store_error_of

RESPONSE, REFUSED = exceptions.ResponseError, exceptions.ConnectionError


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (TimeoutError("late"), StoreTimeout, r"within 0\.25 s"),
        (REFUSED("refused"), StoreUnavailable, "cannot be reached: refused"),
        (OSError("no route"), StoreUnavailable, "cannot be reached: no route"),
        (exceptions.AuthenticationError("wrong"), StoreError, "rejected the credentials: wrong"),
        (RESPONSE("LOADING dataset"), StoreUnavailable, "cannot serve: LOADING"),
        (RESPONSE("Error running script: @user_script:5: -OOM memory"), StoreUnavailable, "OOM"),
        (exceptions.ClusterDownError("down"), StoreUnavailable, "down"),
        (RESPONSE("NOPERM no permissions"), StoreError, "answered with an error: NOPERM"),
        (RESPONSE("ERR it says LOADING somewhere"), StoreError, "answered with an error"),
        (ValueError("odd"), StoreUnavailable, "cannot read"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_each_error_becomes_a_store_error(error: Exception, expected: type[StoreError], message: str) -> None:
    """Out of service, too late and wrong are different classes."""
    translated = store_error_of(error, 0.25)
    assert type(translated) is expected
    with pytest.raises(StoreError, match=message):
        raise translated


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.AuthenticationError("WRONGPASS invalid"), "both, redis://user:password@host:6379/0"),
        (RESPONSE("SELECT is not allowed in cluster mode"), ": it is a node of a cluster, redis+cluster://host"),
        (exceptions.MovedError("7629 10.0.0.7:6379"), ": it is a node of a cluster, redis+cluster://"),
        (REFUSED("Error 1 connecting to a:1. [SSL: WRONG_VERSION_NUMBER] (_ssl.c:1)."), "redis:// without"),
        (REFUSED("Error while reading from a:1 : (104, 'Connection reset by peer')"), "rediss://host:6379/0 is with"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_an_error_that_stays_says_what_to_change(error: Exception, advice: str) -> None:
    """With the right form of the URL; an error that may pass has no advice."""
    assert advice in str(store_error_of(error, 0.25, "shop"))
