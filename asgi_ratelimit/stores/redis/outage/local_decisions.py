"""Who decides while the store cannot: a limiter in this process, everybody may, or nobody may."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ....algorithms import foresee, share
from ....clock import Clock
from ....decision import Charge, Decision, OnError, Settlement, Take, checked_on_error
from ....errors import ConfigurationError, StoreError
from ....quotas import Quota, TokenBucket
from ...memory import MemoryStore
from ..script import Known
from .ledger import Debts

DENIED_FOR = 1.0
"""Seconds after which a caller that was denied for want of a store may try again."""

MAX_FOLLOWED = 10_000
"""How many buckets are followed while the store is well, and up to as many more that were used longer ago."""

logger = logging.getLogger("asgi_ratelimit")


class Failover:
    """Decisions for the time that the store is out, each ``degraded``, with one log line for each transition.

    ``"local"`` limits in this process, with the quotas divided by ``replicas``, the number of processes that share
    the store. It takes over warm: it goes on from what the store last said of each bucket, and what it admits are
    ``debts``, for the store to be charged with. ``"allow"`` lets all through; ``"deny"`` refuses all.
    Raises ``ConfigurationError`` for other words.
    """

    def __init__(self, on_error: OnError, replicas: int, clock: Clock) -> None:
        if not isinstance(replicas, int) or replicas < 1:
            raise ConfigurationError(f"replicas must be a whole number of at least 1, not {replicas!r}: replicas=4")
        self._on_error = checked_on_error(on_error)
        self._replicas = replicas
        self._clock = clock
        self._local = MemoryStore(clock=clock)
        self.debts = Debts(self._local, clock)
        self._followed: Known = {}
        self._followed_before: Known = {}
        self._out: set[str] = set()

    def follow(self, known: Known) -> None:
        """The store is well, and has left these buckets in these states, or found them so and refused."""
        self._followed.update(known)
        if len(self._followed) > MAX_FOLLOWED:
            self._followed_before = self._followed
            self._followed = {}

    async def forget(self, charges: Sequence[Charge]) -> None:
        """The store has forgotten these buckets."""
        for charge in charges:
            self._followed.pop(charge.bucket, None)
            self._followed_before.pop(charge.bucket, None)
        await self._local.reset(charges)

    def back(self, where: str = "") -> None:
        """The store, or the part of it that is ``where``, answers again."""
        if where in self._out:
            self._out.discard(where)
            logger.warning("the rate limit store%s is back", _at(where))

    def out(self, error: StoreError, where: str = "") -> None:
        """The store, or the part of it that is ``where``, does not answer."""
        if where not in self._out:
            self._out.add(where)
            logger.error(
                "the rate limit store%s is out, deciding by on_error=%r: %s", _at(where), self._on_error, error
            )

    def decide(self, take: Take) -> Decision:
        """A decision in place of that which the store cannot make."""
        on_error = take.on_error or self._on_error
        if on_error == "local":
            return self._decide_here(take)
        decision = foresee(take, [None] * len(take.charges), float(self._clock.now_us()))
        if on_error == "allow":
            decision = replace(decision, allowed=True, granted=take.charges[0].cost, delay=0.0, retry_after=0.0)
        elif decision.allowed:
            decision = replace(decision, allowed=False, granted=0, delay=0.0, retry_after=DENIED_FOR)
        return replace(decision, degraded=True, before=None)

    async def settle(self, settlement: Settlement) -> None:
        """Settle what was decided here."""
        await self._local.settle(settlement)

    def _decide_here(self, take: Take) -> Decision:
        whole = take.charges
        if self._replicas > 1:
            charges = tuple([replace(charge, quota=_divided(charge.quota, self._replicas)) for charge in whole])
            take = replace(take, charges=charges)
        self._take_over(take.charges)
        before = list(map(self._local.state_of, take.charges))
        (decision,) = self._local.take_soon((take,))
        if decision.allowed:
            for charge, here, state in zip(whole, take.charges, before):
                self.debts.note(charge, here, state)
        return replace(decision, degraded=True)

    def _take_over(self, charges: Sequence[Charge]) -> None:
        """Go on from what is known of these buckets, each once for each time that it was followed."""
        for charge in charges:
            before = self._followed_before.pop(charge.bucket, None)
            quota, state = self._followed.pop(charge.bucket, before) or (charge.quota, None)
            if state is not None and quota.cut == charge.quota.cut:
                self._local.adopt(charge, share(quota, state, self._replicas))


@lru_cache(maxsize=1024)
def _divided(quota: Quota, replicas: int) -> Quota:
    """One replica's share of a quota, a window's at least 1 unit; the same object each time, to be found by."""
    if isinstance(quota, TokenBucket):
        return replace(quota, limit=quota.limit / replicas, burst=max(1.0, quota.burst / replicas))
    return replace(quota, limit=max(1.0, quota.limit / replicas))


def _at(where: str) -> str:
    return f" at {where}" if where else ""
