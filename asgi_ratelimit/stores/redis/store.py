"""The store that many processes share: buckets in Redis, decided there by a script, many takes in one call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from typing import cast
from weakref import WeakKeyDictionary

from ...buckets import escaped
from ...clock import Clock, SystemClock, monotonic_us
from ...decision import Bucket, Charge, Decision, OnError, Settlement, Take
from ...errors import ConfigurationError, StoreError
from . import script as _wire
from .cluster.cluster import ClusterLanes
from .connection.addresses import RedisLike, Single, source_of
from .denials import Denials
from .node import Lane, Shared
from .outage.local_decisions import Failover


class RedisStore:
    """Buckets in Redis 6.2 or newer, or Valkey: one string key for each, decided by a script on the server's clock.

    ``url_or_client`` is a URL (``redis://``, ``rediss://``, ``unix://``, and ``redis+cluster://host:port,host:port``
    or ``redis+sentinel://host:port,host:port/service``) or a client of ``redis.asyncio``, of which the addresses and
    the credentials are used; connections are the store's own, because a limiter's must not retry.
    ``timeout`` is the deadline of a take in seconds, waiting for others and for a connection included. When Redis does
    not answer in time, ``on_error`` decides: ``"local"`` (a limiter in this process, with the limits divided by
    ``replicas``), ``"allow"`` or ``"deny"``; such decisions are ``degraded``. With a ``clock`` of its own, the time
    comes from there, and keys live for an hour at least. Raises ``ConfigurationError`` for arguments that cannot be.
    """

    in_process = False

    def __init__(
        self,
        url_or_client: RedisLike,
        *,
        prefix: str = "rl",
        timeout: float = 0.25,
        on_error: OnError = "local",
        replicas: int = 1,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
            raise ConfigurationError(f"timeout must be seconds above 0, not {timeout!r}: timeout=0.25")
        self._source = source_of(url_or_client, timeout)
        self._denials = Denials(clock.now_us if clock else monotonic_us)
        self._failover = Failover(on_error, replicas, clock or SystemClock())
        self._shared = Shared(escaped(prefix), timeout, clock, self._denials, self._failover)
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, Lane | ClusterLanes] = WeakKeyDictionary()
        self._latest: tuple[asyncio.AbstractEventLoop | None, Lane | ClusterLanes | None] = (None, None)

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._shared.prefix.decode()!r}, timeout={self._shared.timeout})"

    @property
    def clock(self) -> Clock | None:
        """Whose time it goes by; ``None`` for the server's."""
        return self._shared.clock

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order, by a call to Redis that carries those of others, too."""
        return await _here(self.take_soon(takes))

    def take_soon(self, takes: Sequence[Take]) -> list[Decision] | Awaitable[list[Decision]]:
        """``take`` without a coroutine of its own: the decisions, or where they are not here yet what to await."""
        if len(takes) != 1:
            return self._take_in_order(takes)
        denied = self._denials.find(takes[0])
        return [denied] if denied is not None else self._lane().take(takes[0])

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken. Raises ``StoreError`` if Redis does not answer."""
        return cast("Decision", await self._lane().submit(_wire.Look(take)))

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing.

        If Redis does not answer, it is done when that is back.
        """
        if settlement.degraded:
            await self._failover.settle(settlement)
            return
        self._denials.forget(settlement.charges)
        try:
            await self._lane().submit(settlement)
        except StoreError:
            self._failover.debts.postpone(settlement)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges. Raises ``StoreError`` if Redis does not answer."""
        if not charges:
            return
        self._denials.forget(charges)
        await self._lane().submit(_wire.Reset(charges))
        await self._failover.forget(charges)

    async def aclose(self) -> None:
        """Close this event loop's connection; a store that is used again afterwards opens a new one."""
        lane = self._lanes.pop(asyncio.get_running_loop(), None)
        self._latest = (None, None)
        if lane is not None:
            await lane.aclose()

    async def _take_in_order(self, takes: Sequence[Take]) -> list[Decision]:
        """What one take books the next one sees: once a bucket is asked for, none is refused here on its account."""
        asked: set[Bucket] = set()
        denied: list[Decision | None] = []
        for take in takes:
            buckets = {charge.bucket for charge in take.charges}
            denied.append(None if asked & buckets else self._denials.find(take))
            asked |= buckets
        answers = self._lane().take_all([take for take, no in zip(takes, denied) if no is None])
        given = iter(await asyncio.gather(*map(_here, answers)))
        return [next(given)[0] if no is None else no for no in denied]

    def _lane(self) -> Lane | ClusterLanes:
        """The way to Redis of the running event loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        latest, lane = self._latest
        if latest is not loop or lane is None:
            lane = self._lanes.get(loop)
            if lane is None:
                for ended in [each for each in self._lanes if each.is_closed()]:
                    del self._lanes[ended]  # which its lane would keep alive
                lane = self._lanes[loop] = self._new_lane()
            self._latest = (loop, lane)
        return lane

    def _new_lane(self) -> Lane | ClusterLanes:
        if isinstance(self._source, Single):
            return Lane(self._shared, self._source.pool())
        return ClusterLanes(self._shared, self._source)


async def _here(decisions: list[Decision] | Awaitable[list[Decision]]) -> list[Decision]:
    return decisions if isinstance(decisions, list) else await decisions
