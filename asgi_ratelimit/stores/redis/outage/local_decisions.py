"""Decisions while the store is out: by a limiter in this process, always yes, or always no."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....algorithms import foresee, share, unpack
from ....clock import Clock, monotonic_us
from ....decision import Charge, Decision, OnError, Take, checked_on_error
from ....errors import ConfigurationError, StoreError
from ....logs import REPORT_EVERY_US
from ....quotas import SECOND_US, Quota, TokenBucket
from ...memory import MemoryStore
from ...operations import OPERATION_TTL
from ..replies import Values
from .ledger import OutageLedger

DENIED_FOR = 1.0
"""The ``retry_after``, in seconds, of a take that ``on_error="deny"`` refuses."""

MAX_VALUES = 10_000
"""How many recent values of buckets are remembered, besides up to as many older ones."""

logger = logging.getLogger("asgi_ratelimit")


MEANWHILE = {
    "local": "each process now limits by itself",
    "allow": "every request now passes",
    "deny": "every request is now refused",
}
"""What happens while the store is out, by ``on_error``."""


class LocalDecisions:
    """Decisions for the time that the store is out, each ``degraded``; logs when the store goes out and comes back.

    ``"local"`` limits in this process, with the quotas divided by ``replicas``, the number of processes that share
    the store, but never to less than one take that the whole quota can grant. It starts from the latest values that the
    store has reported, and writes what it admits into the ``ledger``, with which the store is charged later.
    ``"allow"`` admits all takes, and ``"deny"`` refuses all.
    Raises ``ConfigurationError`` for any other ``on_error``.
    """

    def __init__(
        self,
        on_error: OnError,
        replicas: int,
        clock: Clock,
        parts_of: Callable[[Any], Sequence[Any]] = lambda action: (action,),
        operation_ttl: float = OPERATION_TTL,
    ) -> None:
        if not isinstance(replicas, int) or replicas < 1:
            raise ConfigurationError(f"replicas must be a whole number of at least 1, not {replicas!r}: replicas=4")
        self._on_error = checked_on_error(on_error)
        self._replicas = replicas
        self._clock = clock
        self._local = MemoryStore(clock=clock, operation_ttl=operation_ttl)
        self.ledger = OutageLedger(self._local, clock, parts_of)
        self.latest_values: Values = {}
        """The values that the store has reported, updated with each reply."""
        self._older_values: Values = {}
        self._outages: set[str] = set()
        self._reasons: dict[tuple[str, str], float] = {}

    @property
    def is_out(self) -> bool:
        """Whether the store, or a node of it, is out."""
        return bool(self._outages)

    def forget_oldest_values(self) -> None:
        """Forget the values that were reported before the latest ones; called when there are ``MAX_VALUES``."""
        self._older_values = self.latest_values
        self.latest_values = {}

    async def forget(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges: the store has been reset."""
        for charge in charges:
            self.latest_values.pop(charge.bucket, None)
            self._older_values.pop(charge.bucket, None)
        await self._local.reset(charges)

    def store_is_back(self, node: str = "") -> None:
        """Note that the store, or one ``node`` of it, answers again."""
        if node in self._outages:
            self._outages.discard(node)
            logger.warning("the rate limit store%s is back", _at(node))

    def store_is_out(self, error: StoreError, node: str = "") -> None:
        """Note that the store, or one ``node`` of it, does not answer, and log this and each new reason."""
        is_first, now = node not in self._outages, monotonic_us()
        self._outages.add(node)
        reason = node, str(error)
        reported_us = self._reasons.get(reason, -math.inf)
        if is_first:
            text = "the rate limit store%s is out; %s (on_error=%r, unless a limit has its own): %s"
            logger.error(text, _at(node), MEANWHILE[self._on_error], self._on_error, error)
        elif now - reported_us >= REPORT_EVERY_US:
            logger.error("the rate limit store%s is out for another reason: %s", _at(node), error)
        else:
            return
        self._reasons = {each: at for each, at in self._reasons.items() if now - at < REPORT_EVERY_US}
        self._reasons[reason] = now

    def decide(self, take: Take, is_unclear: bool = False) -> Decision:
        """The local decision on ``take``, which the store may have carried out if that ``is_unclear``."""
        on_error = take.on_error or self._on_error
        if on_error == "local":
            return self._decide_locally(take, is_unclear)
        now_us = float(self._clock.now_us())
        decision = foresee(take, [None] * len(take.charges), now_us)
        if on_error == "allow":
            granted, ready_at = take.charges[0].cost, now_us / SECOND_US
            decision = replace(decision, allowed=True, granted=granted, delay=0.0, retry_after=0.0, ready_at=ready_at)
        elif decision.allowed:
            decision = replace(decision, allowed=False, granted=0, delay=0.0, retry_after=DENIED_FOR)
        return replace(decision, degraded=True, before=None)

    def _decide_locally(self, take: Take, is_unclear: bool) -> Decision:
        local_take = take
        if self._replicas > 1:
            shares = tuple([replace(charge, quota=self._share_of(charge, take)) for charge in take.charges])
            local_take = replace(take, charges=shares)
        self._adopt_values(take.charges, local_take.charges)
        return replace(self.ledger.decide(take, local_take, is_unclear), degraded=True)

    def _share_of(self, charge: Charge, take: Take) -> Quota:
        """This process's share of a charge's quota: a take that fits the whole quota must fit the share too.

        A token bucket that has granted such a take keeps that burst: a lower burst would forget a part of the usage.
        """
        own = _share(charge.quota, self._replicas)
        if charge.cost > own.most and not take.best_effort:
            own = _share(charge.quota, self._replicas, min(charge.cost, charge.quota.most))
        before = self.ledger.quota_here(charge.bucket)
        if isinstance(own, TokenBucket) and isinstance(before, TokenBucket) and before.burst > own.burst:
            return replace(own, burst=min(before.burst, charge.quota.most))
        return own

    def _adopt_values(self, charges: Sequence[Charge], local_charges: Sequence[Charge]) -> None:
        """Start from the latest values that the store has reported, once for each report."""
        for charge, local_charge in zip(charges, local_charges):
            older = self._older_values.pop(charge.bucket, None)
            state = unpack(charge.quota, self.latest_values.pop(charge.bucket, older))
            if state is not None:
                self.ledger.adopt(local_charge, share(charge.quota, state, self._replicas))


@lru_cache(maxsize=1024)
def _share(quota: Quota, replicas: int, least: float = 1.0) -> Quota:
    """One replica's share of a quota, at least ``least`` units at once. Cached, because quotas are compared often."""
    if isinstance(quota, TokenBucket):
        return replace(quota, limit=quota.limit / replicas, burst=max(least, quota.burst / replicas))
    return replace(quota, limit=max(least, quota.limit / replicas))


def _at(node: str) -> str:
    return f" at {node}" if node else ""
