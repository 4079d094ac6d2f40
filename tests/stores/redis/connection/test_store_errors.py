"""Errors of redis-py, and the errors of this package that they become."""

from __future__ import annotations

import pytest
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from asgi_ratelimit.errors import StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.stores.redis.errors import NotWritable, store_error_of


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (TimeoutError("late"), StoreTimeout, r"within 0\.25 s"),
        (RedisTimeoutError("too late"), StoreTimeout, r"within 0\.25 s"),
        (RedisConnectionError("refused"), StoreUnavailable, "cannot be reached: refused"),
        (OSError("no route"), StoreUnavailable, "cannot be reached: no route"),
        (BusyLoadingError("loading"), StoreUnavailable, "loading"),
        (AuthenticationError("wrong"), StoreError, "rejected the credentials: wrong"),
        (ResponseError("LOADING dataset"), StoreUnavailable, "LOADING"),
        (ResponseError("BUSY a script"), StoreUnavailable, "BUSY"),
        (ResponseError("MASTERDOWN link"), StoreUnavailable, "MASTERDOWN"),
        (ResponseError("CLUSTERDOWN slot"), StoreUnavailable, "CLUSTERDOWN"),
        (ResponseError("READONLY replica"), NotWritable, "READONLY"),
        (ResponseError("MISCONF snapshots"), NotWritable, "MISCONF"),
        (ResponseError("NOREPLICAS few"), NotWritable, "NOREPLICAS"),
        (ResponseError("OOM memory"), NotWritable, "OOM"),
        (ResponseError("Error running script: @user_script:5: -OOM memory"), NotWritable, "OOM"),
        (ReadOnlyError("a replica"), NotWritable, "a replica"),
        (OutOfMemoryError("full"), NotWritable, "full"),
        (ClusterDownError("down"), StoreUnavailable, "down"),
        (ResponseError("NOPERM no permissions"), StoreError, "answered with an error: NOPERM"),
        (ResponseError("ERR it says LOADING somewhere"), StoreError, "answered with an error"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_each_error_becomes_a_store_error(error: Exception, expected: type[StoreError], message: str) -> None:
    """Out of service, too late, not writable and wrong are different classes."""
    translated = store_error_of(error, 0.25)
    assert type(translated) is expected
    with pytest.raises(StoreError, match=message):
        raise translated


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (AuthenticationError("wrong password"), "wrong password: put the user and the password into the URL, redis://"),
        (
            AuthenticationError("AUTH <password> called without any password configured for the default user. Sure?"),
            "Sure?: leave the password out of the URL, redis://host:6379/0",
        ),
        (ResponseError("ERR This instance has cluster support disabled"), ": it is a single Redis, redis://host"),
        (ResponseError("SELECT is not allowed in cluster mode"), ": it is a node of a cluster, redis+cluster://host"),
        (MovedError("7629 10.0.0.7:6379"), ": MOVED 7629 10.0.0.7:6379: it is a node of a cluster, redis+cluster://"),
        (ResponseError("ERR unknown command 'EVALSHA'"), ": if it is a sentinel, write redis+sentinel://host:26379/my"),
        (
            RedisConnectionError(
                "Error 1 connecting to a:1. [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1)."
            ),
            "(_ssl.c:1): the port does not speak TLS, redis://host:6379/0",
        ),
        (
            RedisConnectionError("Error while reading from a:1 : (104, 'Connection reset by peer')"),
            "'Connection reset by peer'): a port that speaks TLS needs rediss://host:6379/0",
        ),
        (
            InvalidResponse('Protocol error, got "H" as reply type byte'),
            "reply type byte: what answers there is no Redis, redis://host:6379/0",
        ),
        (InvalidResponse("Protocol Error: b'HTTP/1.1 400'"), "400': what answers there is no Redis, redis://host"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_an_error_that_stays_says_what_to_change(error: Exception, advice: str) -> None:
    """With the right form of the URL; an error that may pass has no advice."""
    assert advice in str(store_error_of(error, 0.25, untried="redis"))


@pytest.mark.parametrize("untried", ["", "rediss"])
def test_a_closed_connection_may_pass(untried: str) -> None:
    """Where the server has answered before, or speaks TLS."""
    closed = RedisConnectionError("Connection closed by server.")
    assert str(store_error_of(closed, 0.25, untried=untried)) == "Redis cannot be reached: Connection closed by server."


@pytest.mark.parametrize("command", ["", "run the 'set' command or its subcommand"])
def test_a_refusal_of_a_command_names_no_keys(command: str) -> None:
    """The pattern of the keys would not help."""
    assert "ACL SETUSER" not in str(store_error_of(NoPermissionError(f"no permissions to {command}"), 0.25, b"shop"))
