"""Who decides while Redis cannot: a local limiter, everybody may, or nobody may."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ..algorithms import foresee
from ..clock import Clock
from ..decision import Decision, Settlement, Take
from ..errors import ConfigurationError, StoreError
from ..quotas import Quota, TokenBucket
from .memory import MemoryStore

OnError: TypeAlias = Literal["local", "allow", "deny"]

DENIED_FOR = 1.0
"""Seconds after which a caller that was denied for want of a store may try again."""

logger = logging.getLogger("asgi_ratelimit")


class Failover:
    """Decisions for the time that the store is out, each ``degraded``, with one log line for each transition.

    ``"local"`` limits in this process with the quotas divided by ``replicas``, the number of processes that share
    the store; ``"allow"`` lets all through; ``"deny"`` refuses all. Raises ``ConfigurationError`` for other words.
    """

    def __init__(self, on_error: OnError, replicas: int, clock: Clock) -> None:
        if on_error not in ("local", "allow", "deny"):
            raise ConfigurationError(f'on_error must be "local", "allow" or "deny", not {on_error!r}')
        if replicas < 1:
            raise ConfigurationError(f"replicas must be at least 1, not {replicas!r}: replicas=4")
        self._on_error = on_error
        self._replicas = replicas
        self._clock = clock
        self._local = MemoryStore(clock=clock)
        self._out = False

    def succeeded(self) -> None:
        """The store has answered."""
        if self._out:
            self._out = False
            logger.warning("the rate limit store is back")

    async def take(self, takes: Sequence[Take], error: StoreError) -> list[Decision]:
        """Decisions in place of those that ``error`` kept the store from making."""
        if not self._out:
            self._out = True
            logger.error("the rate limit store is out, deciding by on_error=%r: %s", self._on_error, error)
        if self._on_error == "local":
            shares = [self._share(take) for take in takes]
            return [replace(decision, degraded=True) for decision in await self._local.take(shares)]
        return [self._verdict(take) for take in takes]

    async def settle(self, settlement: Settlement) -> None:
        """Settle what was decided here."""
        await self._local.settle(settlement)

    def _share(self, take: Take) -> Take:
        if self._replicas == 1:
            return take
        charges = tuple(replace(charge, quota=_divided(charge.quota, self._replicas)) for charge in take.charges)
        return replace(take, charges=charges)

    def _verdict(self, take: Take) -> Decision:
        now = float(self._clock.now_us())
        decision = foresee(take, [None] * len(take.charges), now)
        if self._on_error == "allow":
            decision = replace(decision, allowed=True, granted=take.charges[0].cost, delay=0.0, retry_after=0.0)
        elif decision.allowed:
            decision = replace(decision, allowed=False, granted=0, delay=0.0, retry_after=DENIED_FOR)
        return replace(decision, degraded=True, before=None)


def _divided(quota: Quota, replicas: int) -> Quota:
    """One replica's share of a quota, a window's at least 1 unit."""
    if isinstance(quota, TokenBucket):
        return replace(quota, limit=quota.limit / replicas, burst=max(1.0, quota.burst / replicas))
    return replace(quota, limit=max(1.0, quota.limit / replicas))
