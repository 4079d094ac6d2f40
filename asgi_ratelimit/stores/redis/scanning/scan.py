"""Searches the keys of a Redis for buckets, a bounded number at a time, so that no command holds it for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ....buckets import bucket, escaped
from ....errors import ConfigurationError, StoreError
from ..connection.script_calls import ScriptCaller
from ..connection.server_addresses import Address, ClusterAddresses, RedisLike, SingleAddress, addresses_of
from .stored_buckets import StoredBucket, stored_bucket

COUNT = 1000
"""Keys that Redis looks at for one command."""


class Scan:
    """The buckets of a store, for one event loop; for a cluster, on all of its primaries.

    ``url_or_client`` and ``prefix`` are those of the store, and ``timeout`` is that of one command in seconds.
    ``looked`` counts the keys, and ``is_whole`` says whether all have been seen. Raises ``ConfigurationError`` for
    invalid arguments.
    """

    def __init__(self, url_or_client: RedisLike, *, prefix: str = "rl", timeout: float = 2.0) -> None:
        self._addresses = addresses_of(url_or_client, timeout)
        self._prefix = escaped(prefix)
        self._timeout = timeout
        self.looked = 0
        self.is_whole = True

    async def buckets(self, name: str | None = None, key: str | None = None, *, most: int) -> list[StoredBucket]:
        """The buckets under a name and of a key, or all of them; it stops after ``most`` keys.

        Raises ``StoreError`` if Redis does not answer.
        """
        if not isinstance(most, int) or most < 1:
            raise ConfigurationError(f"most must be a whole number of at least 1, not {most!r}: most=100_000")
        tag = "*" if key is None else bucket("", key)
        pattern = f"{self._prefix}:{'*' if name is None else escaped(name)}:*{tag}"
        return [each async for each in self._all(pattern, most)]

    async def _all(self, pattern: str, most: int) -> AsyncIterator[StoredBucket]:
        for pool in await self._pools():
            caller = ScriptCaller(pool, self._timeout)
            try:
                async for each in self._of_node(caller, pattern, most):
                    yield each
            finally:
                await caller.aclose()

    async def _of_node(self, caller: ScriptCaller, pattern: str, most: int) -> AsyncIterator[StoredBucket]:
        cursor: bytes | int = 0
        while True:
            cursor, keys = await caller.command("SCAN", cursor, "MATCH", pattern, "COUNT", COUNT, "TYPE", "string")
            self.looked += COUNT
            seconds, microseconds = await caller.command("TIME")
            now_us = float(int(seconds) * 1_000_000 + int(microseconds))
            for text, value in zip(keys, await self._values(caller, keys), strict=True):
                own = text.decode(errors="replace").removeprefix(f"{self._prefix}:")
                bucket = None if value is None else stored_bucket(own, value, now_us)
                if bucket is not None:
                    yield bucket
            if int(cursor) == 0:
                return
            if self.looked >= most:
                self.is_whole = False
                return

    async def _values(self, caller: ScriptCaller, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        if isinstance(self._addresses, SingleAddress):
            return await caller.command("MGET", *keys) if keys else []
        return [await caller.command("GET", key) for key in keys]

    async def _pools(self) -> list[Any]:
        """Connections to each Redis that has keys."""
        if isinstance(self._addresses, SingleAddress):
            return [self._addresses.pool()]
        return [self._addresses.pool(address) for address in await self._primaries(self._addresses)]

    async def _primaries(self, addresses: ClusterAddresses) -> list[Address]:
        failure: StoreError | None = None
        for seed in addresses.seeds:
            caller = ScriptCaller(addresses.pool(seed), self._timeout)
            try:
                slots = await caller.command("CLUSTER", "SLOTS")
            except StoreError as error:
                failure = error
            else:
                named = [(part[2][0].decode() or seed[0], int(part[2][1])) for part in slots]
                return list(dict.fromkeys(map(addresses.remap, named)))
            finally:
                await caller.aclose()
        raise failure or ConfigurationError("a cluster needs an address: redis+cluster://host1:6379,host2:6379")
