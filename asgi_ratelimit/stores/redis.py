"""The store that many processes share: buckets in Redis, decided there by a script, many takes in one call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias, cast
from weakref import WeakKeyDictionary

from redis.asyncio import Redis

from .._keys import escaped, redis_key
from ..clock import Clock, SystemClock, monotonic_us
from ..decision import Charge, Decision, OnError, Settlement, Take
from ..errors import ConfigurationError, StoreError, StoreUnavailable
from . import _wire
from ._breaker import Breaker
from ._denials import Denials
from ._failover import Failover
from ._group_commit import GroupCommit
from ._link import Link, pool_of

_STEPPED_TTL_MS = 3_600_000

_Lane: TypeAlias = GroupCommit[_wire.Action, Decision | None]


class RedisStore:
    """Buckets in Redis 6.2 or newer, or Valkey: one string key for each, decided by a script on the server's clock.

    ``url_or_client`` is a URL (``redis://``, ``rediss://``, ``unix://``) or a ``redis.asyncio.Redis``, of which the
    address and the credentials are used; connections are the store's own, because a limiter's must not retry.
    ``timeout`` is the deadline of a take in seconds, waiting for others and for a connection included. When Redis does
    not answer in time, ``on_error`` decides: ``"local"`` (a limiter in this process, with the limits divided by
    ``replicas``), ``"allow"`` or ``"deny"``; such decisions are ``degraded``. With a ``clock`` of its own, the time
    comes from there, and keys live for an hour at least. Raises ``ConfigurationError`` for arguments that cannot be.
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
        if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
            raise ConfigurationError(f"timeout must be seconds above 0, not {timeout!r}: timeout=0.25")
        pool_of(url_or_client, timeout)  # a wrong URL is told at once
        self._source = url_or_client
        self._prefix = escaped(prefix)
        self._timeout = timeout
        self._clock = clock
        self._least_ttl_ms = b"%d" % (_STEPPED_TTL_MS if clock else 1)
        self._denials = Denials(clock.now_us if clock else monotonic_us)
        self._breaker = Breaker(monotonic_us)
        self._failover = Failover(on_error, replicas, clock or SystemClock())
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._latest: tuple[asyncio.AbstractEventLoop | None, _Lane | None] = (None, None)

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._prefix.decode()!r}, timeout={self._timeout})"

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order, by a call to Redis that carries those of others, too."""
        if len(takes) == 1:
            return [await self._take(takes[0])]
        return list(await asyncio.gather(*map(self._take, takes)))

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken. Raises ``StoreError`` if Redis does not answer."""
        return cast("Decision", await self._lane().submit(_wire.Look(take)))

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing.

        Raises ``StoreError`` if Redis does not answer.
        """
        if settlement.degraded:
            await self._failover.settle(settlement)
        else:
            self._denials.forget(settlement.charges)
            await self._lane().submit(settlement)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges. Raises ``StoreError`` if Redis does not answer."""
        self._denials.forget(charges)
        await self._lane().submit(_wire.Reset(charges))

    async def aclose(self) -> None:
        """Close this event loop's connection; a store that is used again afterwards opens a new one."""
        lane = self._lanes.pop(asyncio.get_running_loop(), None)
        self._latest = (None, None)
        if lane is not None:
            await lane.aclose(StoreUnavailable("the store was closed"))

    async def _take(self, take: Take) -> Decision:
        denied = self._denials.find(take)
        if denied is not None:
            return denied
        if self._breaker.lets_through():
            try:
                return cast("Decision", await self._lane().submit(take))
            except StoreError:
                pass  # it is told once for all who wait, where it came from
        return await self._failover.decide(take)

    def _lane(self) -> _Lane:
        """The group commit of the running event loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        latest, lane = self._latest
        if latest is not loop or lane is None:
            lane = self._lanes.get(loop)
            if lane is None:
                link = Link(pool_of(self._source, self._timeout))
                lane = self._lanes[loop] = GroupCommit(partial(self._commit, link), link.aclose)
            self._latest = (loop, lane)
        return lane

    async def _commit(self, link: Link, actions: list[_wire.Action], submitted: float) -> list[Decision | None]:
        """One call to Redis for a batch, the first of which was submitted at that time of the loop."""
        asked_us = self._denials.now_us()
        keys = [redis_key(self._prefix, *charge.bucket) for charge in _wire.charges_of(actions)]
        now = b"%d" % self._clock.now_us() if self._clock else b""
        arguments = (*_wire.encode(actions), now, self._least_ttl_ms)
        try:
            results = _wire.decode(actions, await link.evaluate(keys, arguments, submitted + self._timeout))
        except StoreError as error:
            self._breaker.failed()
            self._failover.out(error)
            raise
        if self._breaker.is_open:
            self._breaker.succeeded()
            self._failover.back()
        return [self._noted(result, asked_us) for result in results]

    def _noted(self, result: _wire.Result, asked_us: float) -> Decision | None:
        if result is None:
            return None
        decision, states = result
        if decision.take is None or not states:
            return decision
        if decision.allowed:
            self._denials.forget(decision.take.charges)
            self._failover.follow(decision.take.charges, states)
        else:
            self._denials.note(decision, asked_us)
        return decision
