"""The store that many processes share: buckets in one Redis, decided there by a script."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from typing import Any, cast
from weakref import WeakKeyDictionary

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..clock import Clock, SystemClock
from ..decision import Charge, Decision, Settlement, Take
from ..errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from . import _wire
from ._failover import Failover, OnError
from ._keys import escaped, redis_key

SCRIPT = files(__package__).joinpath("rate_limit.lua").read_text("utf-8")
SCRIPT_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

CONNECTIONS = 8
"""Connections to Redis for each event loop, at the most; a take beyond them waits, within its deadline."""

_OUT_OF_SERVICE = (
    "BUSY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
)
_STEPPED_TTL_MS = 3_600_000


class RedisStore:
    """Buckets in Redis 6.2 or newer, or Valkey: one string key for each, decided by a script on the server's clock.

    ``url_or_client`` is a URL (``redis://``, ``rediss://``, ``unix://``) or a ``redis.asyncio.Redis``, of which the
    address and the credentials are used; connections are the store's own, because a limiter's must not retry.
    ``timeout`` is the deadline of a take in seconds, waiting for a connection included. When Redis does not answer
    in time, ``on_error`` decides: ``"local"`` (a limiter in this process, with the limits divided by ``replicas``),
    ``"allow"`` or ``"deny"``; such decisions are ``degraded``. With a ``clock`` of its own, the time comes from there,
    and keys live for an hour at least. Raises ``ConfigurationError`` for arguments that cannot be.
    """

    in_process = False

    def __init__(
        self,
        url_or_client: str | Redis,
        *,
        prefix: str = "rl",
        timeout: float = 0.25,
        on_error: OnError = "local",
        replicas: int = 1,
        clock: Clock | None = None,
    ) -> None:
        if not timeout > 0:
            raise ConfigurationError(f"timeout must be seconds above 0, not {timeout!r}: timeout=0.25")
        self._source = url_or_client
        self._prefix = escaped(prefix)
        self._timeout = timeout
        self._clock = clock
        self._least_ttl_ms = _STEPPED_TTL_MS if clock else 1
        self._failover = Failover(on_error, replicas, clock or SystemClock())
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Redis] = WeakKeyDictionary()
        _client(url_or_client, timeout)  # a wrong URL is told at once

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._prefix.decode()!r}, timeout={self._timeout})"

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order, in one call to Redis; ``on_error`` decides if that fails."""
        try:
            charges = [charge for take in takes for charge in take.charges]
            decisions = _wire.decode(takes, await self._run(charges, _wire.encode(takes)))
        except StoreError as error:
            return await self._failover.take(takes, error)
        self._failover.succeeded()
        return decisions

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken. Raises ``StoreError`` if Redis does not answer."""
        packed = _wire.encode([take], look_only=True)
        return _wire.decode_look(take, await self._run(take.charges, packed))

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing.

        Raises ``StoreError`` if Redis does not answer.
        """
        if settlement.degraded:
            await self._failover.settle(settlement)
        else:
            await self._run([line.charge for line in settlement.lines], _wire.encode_settlement(settlement))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges. Raises ``StoreError`` if Redis does not answer."""
        await self._call(self._redis.unlink(*map(self._key, charges)))

    async def aclose(self) -> None:
        """Close this event loop's connections; a store that is used again afterwards opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose(close_connection_pool=True)

    @property
    def _redis(self) -> Redis:
        """The client of the running event loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = _client(self._source, self._timeout)
        return client

    def _key(self, charge: Charge) -> bytes:
        return redis_key(self._prefix, charge.name, charge.quota.name, charge.key)

    async def _run(self, charges: Sequence[Charge], packed: tuple[bytes, bytes]) -> _wire.Reply:
        keys = [self._key(charge) for charge in charges]
        now = b"%d" % self._clock.now_us() if self._clock else b""
        reply = await self._call(self._evaluate(len(keys), *keys, *packed, now, self._least_ttl_ms))
        return cast("_wire.Reply", reply)

    async def _evaluate(self, keys: int, *arguments: bytes | int) -> Any:
        """By its hash, as a rule; Redis forgets scripts at a restart, and then is sent the whole."""
        try:
            return await self._redis.evalsha(SCRIPT_SHA, keys, *arguments)
        except NoScriptError:
            return await self._redis.eval(SCRIPT, keys, *arguments)

    async def _call(self, call: Awaitable[Any]) -> Any:
        """The one boundary: a total deadline, and whatever Redis raises becomes ours."""
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except (TimeoutError, RedisTimeoutError) as error:
            raise StoreTimeout(f"Redis did not answer within {self._timeout} s") from error
        except AuthenticationError as error:
            raise StoreError(f"Redis does not let us in: {error}") from error
        except (RedisConnectionError, OSError) as error:
            raise StoreUnavailable(f"Redis cannot be reached: {error}") from error
        except ResponseError as error:
            kind = StoreUnavailable if str(error).startswith(_OUT_OF_SERVICE) else StoreError
            raise kind(f"Redis answered with an error: {error}") from error
        except RedisError as error:
            raise StoreError(f"Redis failed: {error}") from error


def _client(source: str | Redis, timeout: float) -> Redis:
    """A client with settings that suit a limiter: a total deadline, no retries, a bounded pool that waits."""
    ours: dict[str, Any] = {
        "timeout": timeout,
        "max_connections": CONNECTIONS,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
    }
    if isinstance(source, str):
        return Redis(connection_pool=_pool_of_url(source, {**ours, "protocol": 2}))
    if not isinstance(source, Redis) or not isinstance(source.connection_pool, ConnectionPool):
        raise ConfigurationError(
            f'a Redis store needs a URL or a redis.asyncio.Redis, not {source!r}: RedisStore("redis://localhost")'
        )
    pool = source.connection_pool
    settings = {**pool.connection_kwargs, **ours}
    return Redis(connection_pool=BlockingConnectionPool(connection_class=pool.connection_class, **settings))


def _pool_of_url(url: str, settings: dict[str, Any]) -> BlockingConnectionPool:
    try:
        return BlockingConnectionPool.from_url(url, **settings)
    except ValueError as error:
        raise ConfigurationError(f'{url!r} is no URL of a Redis: {error}: "redis://localhost:6379/0"') from error
