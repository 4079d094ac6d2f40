"""The boundary where errors of redis-py become errors of this package."""

from __future__ import annotations

import re

from redis import exceptions

from ...errors import StoreError, StoreTimeout, StoreUnavailable

_OUT_OF_SERVICE = re.compile(r"(?:^|-)(?:BUSY|LOADING|MASTERDOWN|CLUSTERDOWN)\b")
"""The error code, first in the text or inside a script error, of a Redis that runs but cannot serve."""

_NOT_WRITABLE = re.compile(r"(?:^|-)(?:MISCONF|NOREPLICAS|OOM|READONLY)\b")

_CREDENTIALS = "put the user and the password into the URL, redis://user:password@host:6379/0"

_ADVICE = (
    ("without any password configured", "leave the password out of the URL, redis://host:6379/0"),
    ("cluster support disabled|Cluster mode is not enabled", "it is a single Redis, redis://host:6379/0"),
    ("not allowed in cluster mode", "it is a node of a cluster, redis+cluster://host:6379"),
    ("unknown command .?EVALSHA", "if it is a sentinel, write redis+sentinel://host:26379/mymaster"),
    (
        r"SSL.*(?:WRONG_VERSION_NUMBER|record layer failure|PACKET_LENGTH_TOO_LONG)",
        "the port does not speak TLS, redis://host:6379/0",
    ),
    ("(?i)^protocol error", "what answers there is no Redis, redis://host:6379/0"),
)
"""The errors that do not go away by themselves: how their texts are found, and the advice."""

_CLOSED = re.compile("while reading from .*reset by peer|Connection closed by server")

_SENTINEL_IN_TEXT = re.compile(r"<redis\.asyncio\.client\.\w+\(.*?host=([^,]*),port=([^,]*),.*?\)>\)>\)>")
"""The ``repr`` of redis-py's client for a sentinel, which is longer than a line."""

_OF_A_KEY = re.compile(r"\baccess .*\bkeys?\b")
"""In the text of a refusal by an ACL, if it concerns a key and not a command."""


class NotWritable(StoreUnavailable):
    """Raised if Redis can read but not write: it can still refuse takes."""


def store_error_of(error: BaseException, timeout: float, prefix: str = "", untried: str = "") -> StoreError:
    """The ``StoreError`` for an error of redis-py. ``timeout`` is the deadline of the call in seconds.

    ``prefix`` is the escaped prefix of the keys, if the call had keys. ``untried`` is the scheme of the URL, as long as
    the server has not answered: it may be the wrong one.
    """
    if isinstance(error, StoreError):
        return error
    text = str(error)
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return timed_out(timeout, untried)
    if isinstance(error, exceptions.AuthenticationError):
        return StoreError(f"Redis rejected the credentials: {_advised(error, _CREDENTIALS)}")
    if isinstance(error, (exceptions.ConnectionError, exceptions.RedisClusterException, OSError)):
        tls = "a port that speaks TLS needs rediss://host:6379/0"
        advice = tls if untried == "redis" and _CLOSED.search(text) else ""
        return StoreUnavailable(f"Redis cannot be reached: {_advised(error, advice)}")
    if not isinstance(error, exceptions.RedisError):
        return StoreUnavailable(f"Redis answered what redis-py cannot read: {error!r:.200}")
    if isinstance(error, (exceptions.OutOfMemoryError, exceptions.ReadOnlyError)) or _NOT_WRITABLE.search(text):
        return NotWritable(f"Redis cannot serve: {text}")
    if isinstance(error, exceptions.ClusterDownError) or _OUT_OF_SERVICE.search(text):
        return StoreUnavailable(f"Redis cannot serve: {text}")
    if prefix and _OF_A_KEY.search(text) and (isinstance(error, exceptions.NoPermissionError) or "NOPERM" in text):
        needed = f"the user needs the keys of this store, ACL SETUSER <user> ~{prefix}:*"
        return StoreError(f"Redis answered with an error: {text}: {needed}")
    return StoreError(f"Redis answered with an error: {_advised(error)}")


def timed_out(timeout: float, untried: str = "") -> StoreTimeout:
    """The error for a call without an answer; a port without TLS may wait for the rest of what it takes for a command.

    ``untried`` is as in ``store_error_of``.
    """
    advice = ": if the port does not speak TLS, redis://host:6379/0" if untried == "rediss" else ""
    return StoreTimeout(f"Redis did not answer within {timeout} s{advice}")


def _advised(error: BaseException, otherwise: str = "") -> str:
    """The text of an error, with what to change if it cannot go away by itself."""
    text = _SENTINEL_IN_TEXT.sub(r"\1:\2", str(error))
    if isinstance(error, exceptions.MovedError):
        return f"MOVED {text}: it is a node of a cluster, redis+cluster://host:6379"
    advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, text)), otherwise)
    return f"{text.rstrip('., ')}: {advice}" if advice else text
