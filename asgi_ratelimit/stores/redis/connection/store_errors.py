"""The boundary where errors of redis-py become errors of this package."""

from __future__ import annotations

import re

from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ....errors import StoreError, StoreTimeout, StoreUnavailable

_OUT_OF_SERVICE = re.compile(r"(?:^|-)(?:BUSY|LOADING|MASTERDOWN|CLUSTERDOWN)\b")
"""The error code, first in the text or inside a script error, of a Redis that runs but cannot serve."""

_CREDENTIALS = "put the user and the password into the URL, redis://user:password@host:6379/0"

_NOT_WRITABLE = re.compile(r"(?:^|-)(?:MISCONF|NOREPLICAS|OOM|READONLY)\b")


_OF_A_KEY = re.compile(r"\baccess .*\bkeys?\b")
"""In the text of a refusal by an ACL, where it is about a key and not about a command."""


class NotWritable(StoreUnavailable):
    """Raised where Redis can read but not write: it can still refuse takes."""


class ShardingProxyError(RedisError):
    """Raised where something answers that sends each command to the server of its first key."""

    def __init__(self, answer: object) -> None:
        super().__init__(
            "this is a proxy that shards by the first key, such as Envoy's or twemproxy, so that a bucket would be on "
            "several servers: connect to a server, or to a Redis Cluster (redis+cluster://). "
            f"It answered {str(answer)!r:.200} to a call without keys"
        )


class EventLoopEnded(StoreUnavailable):
    """Raised where the event loop has ended before the answer came, which says nothing of Redis."""

    def __init__(self) -> None:
        super().__init__("the event loop has ended")


def store_error_of(error: Exception, timeout: float, prefix: bytes = b"") -> StoreError:
    """The ``StoreError`` for an error of redis-py. ``timeout`` is the deadline of the call in seconds.

    ``prefix`` is the escaped one of the keys, where the call had keys.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return StoreTimeout(f"Redis did not answer within {timeout} s")
    if isinstance(error, AuthenticationError):
        return StoreError(f"Redis rejected the credentials: {error}: {_CREDENTIALS}")
    if isinstance(error, ShardingProxyError):
        return StoreUnavailable(f"Redis cannot serve: {error}")
    if isinstance(error, (RedisConnectionError, OSError)):
        return StoreUnavailable(f"Redis cannot be reached: {error}")
    if isinstance(error, NoPermissionError) and prefix and _OF_A_KEY.search(str(error)):
        needed = f"the user needs the keys of this store, ACL SETUSER <user> ~{prefix.decode()}:*"
        return StoreError(f"Redis answered with an error: {error}: {needed}")
    if isinstance(error, ResponseError):
        return _error_of_response(error)
    if not isinstance(error, RedisError):
        return StoreUnavailable(f"Redis answered what redis-py cannot read: {error!r:.200}")
    return StoreError(f"Redis answered with an error: {error}")


def _error_of_response(error: ResponseError) -> StoreError:
    if isinstance(error, (OutOfMemoryError, ReadOnlyError)) or _NOT_WRITABLE.search(str(error)):
        return NotWritable(f"Redis cannot serve: {error}")
    if isinstance(error, ClusterDownError) or _OUT_OF_SERVICE.search(str(error)):
        return StoreUnavailable(f"Redis cannot serve: {error}")
    return StoreError(f"Redis answered with an error: {error}")
