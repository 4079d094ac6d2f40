"""The way to Redis: connections whose settings suit a limiter, and the boundary where foreign errors become ours."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, cast

from hiredis import pack_command
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from ._wire import Reply

SCRIPT = files(__package__).joinpath("rate_limit.lua").read_text("utf-8")
SCRIPT_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

_OUT_OF_SERVICE = re.compile(
    r"(?:^|-)(?:BUSY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b"
)
"""How an error starts, or the one inside of a script's, that says that Redis is there but cannot serve."""

_OURS: dict[str, Any] = {
    "socket_timeout": None,  # the deadline of a call covers it, for less
    "retry": Retry(NoBackoff(), 0),  # a retry after a time-out would charge twice
    "decode_responses": False,
    "max_connections": 4,
}
"""Settings that suit a limiter, in place of those that a client has for other work."""


class Link:
    """One connection to one Redis, for one event loop and one call at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connection: AbstractConnection | None = None

    async def evaluate(self, keys: Sequence[bytes], arguments: Sequence[bytes], deadline: float) -> Reply:
        """The reply of the script, by the time ``deadline`` of the event loop. Raises ``StoreError``."""
        try:
            async with asyncio.timeout_at(deadline):
                return cast("Reply", await self._evaluate(len(keys), *keys, *arguments))
        except (TimeoutError, RedisError, OSError) as error:
            await self.aclose()  # in doubt about what comes over it next, or whether it leads to the primary
            raise as_ours(error) from error

    async def aclose(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _evaluate(self, *arguments: str | bytes | int) -> Any:
        """By its hash, as a rule; Redis forgets scripts at a restart, and then is sent the whole."""
        connection = await self._connected()
        try:
            await connection.send_packed_command(_packed("EVALSHA", SCRIPT_SHA, *arguments), check_health=False)
            return await connection.read_response()
        except NoScriptError:
            await connection.send_packed_command(_packed("EVAL", SCRIPT, *arguments), check_health=False)
            return await connection.read_response()

    async def _connected(self) -> AbstractConnection:
        if self._connection is not None and await self._connection.can_read():
            await self.aclose()  # the server has closed it, or said something that nobody asked for
        if self._connection is None:
            self._connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        return self._connection


def _packed(*command: str | bytes | int) -> bytes:
    return cast("bytes", pack_command(command))  # type: ignore[arg-type]  # its stub asks for a tuple of one


def as_ours(error: Exception) -> StoreError:
    """The error of ours that an error of the client means."""
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return StoreTimeout("Redis did not answer in time")
    if isinstance(error, AuthenticationError):
        return StoreError(f"Redis does not let us in: {error}")
    if isinstance(error, (RedisConnectionError, OSError)):
        return StoreUnavailable(f"Redis cannot be reached: {error}")
    if isinstance(error, ResponseError) and _OUT_OF_SERVICE.search(str(error)):
        return StoreUnavailable(f"Redis cannot serve: {error}")
    return StoreError(f"Redis answered with an error: {error}")


def pool_of(source: str | Redis, timeout: float) -> ConnectionPool:
    """A pool of connections to where a URL or a client leads, with settings that suit a limiter.

    Raises ``ConfigurationError`` for what is neither a URL of a Redis nor a client.
    """
    ours = {**_OURS, "socket_connect_timeout": timeout}
    if isinstance(source, str):
        return _pool_of_url(source, ours)
    if not isinstance(source, Redis) or not isinstance(source.connection_pool, ConnectionPool):
        raise ConfigurationError(
            f'a Redis store needs a URL or a redis.asyncio.Redis, not {source!r}: RedisStore("redis://localhost")'
        )
    pool = source.connection_pool
    return ConnectionPool(connection_class=pool.connection_class, **{**pool.connection_kwargs, **ours})


def _pool_of_url(url: str, settings: dict[str, Any]) -> ConnectionPool:
    try:
        return ConnectionPool(**{"protocol": 2, **parse_url(url), **settings})
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f'{url!r} is no URL of a Redis: {error}: "redis://localhost:6379/0"') from error
