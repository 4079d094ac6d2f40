"""The store that needs nothing: buckets in this process, bounded in number. The reference for all stores."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from threading import Lock
from typing import TypeAlias

from ..algorithms import State, decide, foresee, reset_us, settle
from ..clock import Clock, SystemClock
from ..decision import DEFAULT_NAME, Charge, Decision, Settlement, Take
from ..errors import ConfigurationError
from ..quotas import Quota
from ._keys import short_key

Bucket: TypeAlias = tuple[str, str, str]

_LOOKS = 8
"""How many buckets are looked at, at the most, to make room for a new one."""


class MemoryStore:
    """Buckets in this process's memory, for one process, its threads and event loops, or for tests.

    At most ``max_keys`` buckets are kept. To make room for a new one, a bucket goes that is full again, for it holds
    no information; where there is none, the one that is about to be full soonest among the few that were looked at.
    Raises ``ConfigurationError`` for a ``max_keys`` below 1.
    """

    in_process = True

    def __init__(self, *, max_keys: int = 100_000, clock: Clock | None = None) -> None:
        if max_keys < 1:
            raise ConfigurationError(f"max_keys must be at least 1, not {max_keys!r}: MemoryStore(max_keys=100_000)")
        self._max_keys = max_keys
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._buckets: dict[Bucket, tuple[Quota, State | None]] = {}
        # One entry for each bucket: a time at which it will not be full any earlier.
        self._fullness: list[tuple[float, Bucket]] = []

    def __repr__(self) -> str:
        return f"MemoryStore(max_keys={self._max_keys})"

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order. It never waits."""
        return [self._take(take) for take in takes]

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken."""
        with self._lock:
            states = [self._state(charge.quota, _bucket(charge)) for charge in take.charges]
            return foresee(take, states, float(self._clock.now_us()))

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing."""
        with self._lock:
            now = float(self._clock.now_us())
            charges = [line.charge for line in settlement.lines]
            states = [self._state(charge.quota, _bucket(charge)) for charge in charges]
            for charge, state in zip(charges, settle(settlement, states, now)):
                if state is not None:
                    self._put(_bucket(charge), charge.quota, state, now)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        with self._lock:
            for charge in charges:
                if _bucket(charge) in self._buckets:
                    self._buckets[_bucket(charge)] = (charge.quota, None)

    async def aclose(self) -> None:
        """Nothing to let go of; the buckets stay."""

    def _take(self, take: Take) -> Decision:
        with self._lock:
            now = float(self._clock.now_us())
            buckets = [_bucket(charge) for charge in take.charges]
            states = [self._state(charge.quota, bucket) for charge, bucket in zip(take.charges, buckets)]
            decision, written = decide(take, states, now)
            for charge, bucket, state in zip(take.charges, buckets, written):
                if state is not None:
                    self._put(bucket, charge.quota, state, now)
            return decision

    def _state(self, quota: Quota, bucket: Bucket) -> State | None:
        """What is known of a bucket; under another kind of quota or period it counts as never used."""
        kept, state = self._buckets.get(bucket, (quota, None))
        if kept is quota or (type(kept) is type(quota) and kept.period_us == quota.period_us):
            return state
        return None

    def _put(self, bucket: Bucket, quota: Quota, state: State, now: float) -> None:
        if bucket not in self._buckets:
            if len(self._buckets) >= self._max_keys:
                self._make_room(now)
            heappush(self._fullness, (now + reset_us(quota, state, now), bucket))
        self._buckets[bucket] = (quota, state)

    def _make_room(self, now: float) -> None:
        for _ in range(_LOOKS):
            noted, bucket = self._fullness[0]
            full_at = self._full_at(bucket, now)
            if full_at <= noted or full_at <= now:
                break
            heapreplace(self._fullness, (full_at, bucket))
        del self._buckets[heappop(self._fullness)[1]]

    def _full_at(self, bucket: Bucket, now: float) -> float:
        quota, state = self._buckets[bucket]
        return now if state is None else now + reset_us(quota, state, now)


def _bucket(charge: Charge) -> Bucket:
    return (charge.name or DEFAULT_NAME, charge.quota.name, short_key(charge.key))
